"""Providers: parts of the prompt. Those with lower positions change less often and come first."""
