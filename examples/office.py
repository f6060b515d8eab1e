"""Thirty tools of an imaginary office, as plain functions: more than a model should read for each step."""

from collections.abc import Callable
from typing import Final

Function = Callable[[str], str]

_DOES: Final = {
    "calendar_create_event": "Put an event into the calendar.",
    "calendar_delete_event": "Take an event out of the calendar.",
    "calendar_list_events": "List the events of a day.",
    "chat_create_channel": "Open a new channel in the chat.",
    "chat_list_channels": "List the channels of the chat.",
    "chat_post_message": "Post a message into a channel of the chat.",
    "contacts_add": "Add somebody to the address book.",
    "contacts_find": "Find the address of somebody.",
    "documents_create": "Write a new document.",
    "documents_delete": "Throw a document away.",
    "documents_read": "Read a document.",
    "documents_share": "Give somebody access to a document.",
    "expenses_approve": "Approve somebody's expenses.",
    "expenses_list": "List expenses that wait for approval.",
    "expenses_submit": "Hand in a bill to be paid back.",
    "mail_delete": "Delete an e-mail.",
    "mail_draft": "Write an e-mail without sending it.",
    "mail_search": "Search e-mails.",
    "mail_send": "Send an e-mail.",
    "notes_append": "Add a line to the notes.",
    "notes_read": "Read the notes.",
    "printer_print": "Print a document on paper.",
    "projects_close": "Close a project.",
    "projects_status": "Tell how far a project is.",
    "rooms_book": "Book a meeting room.",
    "rooms_cancel": "Cancel the booking of a meeting room.",
    "tasks_assign": "Give a task to somebody.",
    "tasks_create": "Write down a new task.",
    "travel_book": "Book a train or a flight.",
    "travel_cancel": "Cancel a journey.",
}


def _tool(name: str, does: str) -> Function:
    def run(about: str) -> str:
        return f"{name} is done: {about}"

    run.__name__, run.__doc__ = name, does
    return run


OFFICE: Final = [_tool(name, does) for name, does in _DOES.items()]
"""The tools; each takes one text and answers with one."""
