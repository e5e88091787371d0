"""A bot with tweepy that is not built with Greenroom: it answers each mention with the number of its characters."""

import os
import time

import tweepy


class CountingBot:
    """Answers the mentions of an account, each once as long as it runs."""

    def __init__(self, client: tweepy.Client) -> None:
        self.client = client
        self.account = client.get_me(user_auth=True).data
        self.newest_id: str | None = None

    def answer_mentions(self) -> int:
        """Answer the mentions that are new; return their number."""
        found = self.client.get_users_mentions(self.account.id, since_id=self.newest_id, user_auth=True).data or []
        for post in reversed(found):  # the oldest first
            text = f"{len(post.text)} characters, counted by @{self.account.username}"
            self.client.create_tweet(text=text, in_reply_to_tweet_id=post.id, user_auth=True)
            self.newest_id = post.id
        return len(found)


if __name__ == "__main__":
    names = ("consumer_key", "consumer_secret", "access_token", "access_token_secret")
    bot = CountingBot(tweepy.Client(**{name: os.environ[f"X_{name.upper()}"] for name in names}))
    while True:
        bot.answer_mentions()
        time.sleep(60)
