"""A bot with python-telegram-bot that is not built with Greenroom: it converts miles, by command or by button."""

import os

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, Update
from telegram.ext import Application, ApplicationBuilder, CallbackQueryHandler, CommandHandler, ContextTypes

KILOMETRES_PER_MILE = 1.609344


async def convert(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
    """Answer `/km MILES`, with a button for ten times as many."""
    assert update.message is not None
    try:
        miles = float((context.args or [""])[0])
    except ValueError:
        await update.message.reply_text("Write the miles after it: /km 26.2")
        return
    button = InlineKeyboardButton("ten times", callback_data=str(10 * miles))
    await update.message.reply_text(_in_words(miles), reply_markup=InlineKeyboardMarkup([[button]]))


async def convert_more(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
    """Replace the answer when its button is pressed."""
    query = update.callback_query
    assert query is not None
    await query.answer()
    await query.edit_message_text(_in_words(float(query.data or 0)))


def _in_words(miles: float) -> str:
    return f"{miles:g} miles are {miles * KILOMETRES_PER_MILE:.1f} km"


def build(builder: ApplicationBuilder) -> Application:
    """Return the bot."""
    application = builder.build()
    application.add_handlers([CommandHandler("km", convert), CallbackQueryHandler(convert_more)])
    return application


if __name__ == "__main__":
    build(ApplicationBuilder().token(os.environ["TELEGRAM_TOKEN"])).run_polling()
