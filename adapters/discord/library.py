"""Import discord.py without its warning about voice, which is not used."""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "'audioop' is deprecated", DeprecationWarning)
    import discord

VERSION = discord.__version__
