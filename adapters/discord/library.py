"""Loads Discord's library, without a warning about its voice part, which is not used here."""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "'audioop' is deprecated", DeprecationWarning)
    import discord

VERSION = discord.__version__
