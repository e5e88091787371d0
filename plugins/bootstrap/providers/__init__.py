"""What the model is told, one file a provider; lower positions change less and come first."""
