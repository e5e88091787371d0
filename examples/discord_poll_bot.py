"""A bot with discord.py that is not built with Greenroom: it reacts to `!poll` and keeps no state."""

import os

import discord

intents = discord.Intents.default()
intents.message_content = True


class PollBot(discord.Client):
    """Turns `!poll TEXT` into a question that people answer by reactions."""

    async def on_message(self, message: discord.Message) -> None:
        """Post the poll, or say how to write one."""
        if message.author.bot or not message.content.startswith("!poll"):
            return
        question = message.content.removeprefix("!poll").strip()
        if not question:
            await message.reply("Write the question after it: !poll Tea or coffee?")
            return
        poll = await message.channel.send(f"Poll: {question}")
        for emoji in ("👍", "👎"):
            await poll.add_reaction(emoji)


if __name__ == "__main__":
    PollBot(intents=intents).run(os.environ["DISCORD_TOKEN"])
