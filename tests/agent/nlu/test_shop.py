"""The default dialogue, as callers talk and as the recogniser writes it down."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agent.nlu.hook import Hangup, Listen, Session, Transfer, Turn
from agent.nlu.rules import RulesNlu


@pytest.fixture(scope="module")
def shop() -> RulesNlu:
    return RulesNlu()


async def ask(shop: RulesNlu, session: Session, text: str, kind: Any = "speech") -> list[Any]:
    return [item async for item in shop.reply(Turn(session, kind, text))]


@pytest.fixture
def session() -> Session:
    return Session("caller", "console")


FACTS = [
    ("What are your opening hours?", "nine in the morning until six in the evening"),
    ("what are you opening ours", "nine in the morning"),
    ("When do you open?", "nine in the morning"),
    ("What time do you close on Saturday?", "ten in the morning until four in the afternoon"),
    ("Are you open on Sunday?", "closed"),
    ("Are you open on Tuesday?", "On weekdays"),
    ("are you open today", "Monday to Friday"),
    ("Are you open at the weekend?", "On Sundays we're closed"),
    ("How do I return something?", "thirty days"),
    ("I want to send back my order.", "thirty days"),
    ("Can I get a refund?", "thirty days"),
    ("the parcel is damaged", "thirty days"),
    ("How much is delivery?", "five pounds"),
    ("how much does shipping cost", "five pounds"),
    ("is delivry free", "fifty pounds"),
    ("How long does delivery take?", "two to three working days"),
    ("Where is your shop?", "twelve Market Street"),
    ("I'd like to buy a lamp.", "website"),
    ("I want to place an order.", "website"),
    ("Help.", "opening hours"),
    ("hello", "Hello! How can I help?"),
    ("Hi there.", "How can I help?"),
    ("Good morning!", "How can I help?"),
    ("Hello, how are you?", "I'm well"),
    ("do you deliver to France", "We don't deliver abroad"),
    ("Can you ship it to Leeds?", "All over the United Kingdom"),
    ("How much is delivery to Germany?", "We don't deliver abroad"),
    ("How long does it take to deliver to my house?", "two to three working days"),
    ("Do you deliver on Sundays?", "Monday to Friday"),
    ("is my delivery free", "fifty pounds"),
    ("delivery", "five pounds"),
    ("What's your address?", "twelve Market Street"),
    ("Thank you very much.", "else"),
    ("never mind", "else"),
    ("order 4271", "on its way, and should arrive on Thursday"),
    ("Where's my parcel, number five zero three six?", "neighbour"),
    ("can you check order six one eight four", "being packed"),
    ("my order number is seventy-seven twenty", "waiting for your payment"),
    ("8359", "cancelled"),
    ("track double nine oh two", "ready to collect"),
]


@pytest.mark.parametrize(("question", "fact"), FACTS)
async def test_a_question_gets_its_fact(shop: RulesNlu, session: Session, question: str, fact: str) -> None:
    (answer,) = await ask(shop, session, question)
    assert fact in answer


@pytest.mark.parametrize(
    "question",
    [
        "Can I speak to a person?",
        "I want to talk to someone.",
        "give me a human",
        "Operator!",
        "put me through please",
        "I'd like to speak to an agint",
        "cancel my order",
        "can I change my address",
        "I'd like to update the delivery address",
        "my address is wrong",
        "I've moved house",
    ],
)
async def test_a_person_is_a_transfer(shop: RulesNlu, session: Session, question: str) -> None:
    text, action = await ask(shop, session, question)
    assert "through" in text
    assert action == Transfer("customer-service")


@pytest.mark.parametrize("words", ["Goodbye.", "bye", "Thank you, goodbye.", "No thanks, that's all.", "that is all"])
async def test_goodbye_hangs_up_after_playout(shop: RulesNlu, session: Session, words: str) -> None:
    text, action = await ask(shop, session, words)
    assert "bye" in text.lower()
    assert action == Hangup(after_playout=True)


@pytest.mark.parametrize(
    "question",
    [
        "Where is my order?",
        "where's my parcel",
        "order status",
        "I'd like to track my package",
        "where is my older",
        "The delivery is late",
        "my delivery hasn't arrived",
        "I never got my delivery",
        "will my delivery come today",
    ],
)
async def test_an_order_without_its_number_is_asked_for(shop: RulesNlu, session: Session, question: str) -> None:
    text, listen = await ask(shop, session, question)
    assert "four digits" in text
    assert listen == Listen("digits", min_digits=4)


async def test_a_whole_conversation(shop: RulesNlu, session: Session) -> None:
    (hello,) = await ask(shop, session, "", "greeting")
    assert "Hazel and Finch" in hello
    await ask(shop, session, "Hi, where is my order?")
    wrong, listen = await ask(shop, session, "One two three four.")
    assert "can't find order one two three four" in wrong
    assert listen == Listen("digits", min_digits=4)
    (found,) = await ask(shop, session, "Sorry, four two... seven one.")
    assert found == "Found it. Order four two seven one is on its way, and should arrive on Thursday."
    (again,) = await ask(shop, session, "Could you say that again?")
    assert again == found
    (hours,) = await ask(shop, session, "And when do you open on Saturdays?")
    assert "ten in the morning" in hours
    (thanks,) = await ask(shop, session, "Great, thanks.")
    assert "else" in thanks
    assert (await ask(shop, session, "No, that's it."))[-1] == Hangup()


async def test_the_keypad_alone_is_enough(shop: RulesNlu, session: Session) -> None:
    await ask(shop, session, "2", "dtmf")
    (found,) = await ask(shop, session, "4271#", "dtmf")
    assert "on its way" in found
    assert (await ask(shop, session, "0", "dtmf"))[-1] == Transfer("customer-service")


async def test_variants_take_turns(shop: RulesNlu, session: Session) -> None:
    heard = Counter([(await ask(shop, session, "returns"))[0] for _ in range(4)])
    assert sorted(heard.values()) == [2, 2]


async def test_three_misses_transfer(shop: RulesNlu, session: Session) -> None:
    for _ in range(2):
        assert len(await ask(shop, session, "colourless green ideas")) == 1
    assert (await ask(shop, session, "colourless green ideas"))[-1] == Transfer("customer-service")


async def test_three_silences_end_the_call(shop: RulesNlu, session: Session) -> None:
    for _ in range(2):
        assert len(await ask(shop, session, "", "silence")) == 1
    assert (await ask(shop, session, "", "silence"))[-1] == Hangup()


async def test_first_clauses_are_short_so_that_the_voice_starts_early(shop: RulesNlu, session: Session) -> None:
    for question, _ in FACTS:
        (answer,) = await ask(shop, session, question)
        first = min(answer.find(mark) for mark in ".,!?" if mark in answer)
        assert len(answer[:first].split()) <= 6, answer


async def test_a_greeting_is_answered_with_a_greeting_and_not_with_a_list(shop: RulesNlu, session: Session) -> None:
    for words in ("hello", "Hi.", "hey there", "Good evening."):
        (answer,) = await ask(shop, session, words)
        assert len(answer.split()) <= 8


@pytest.mark.parametrize("question", ["can I give you my address", "what's your email address"])
async def test_the_shops_address_is_not_told_to_who_asks_for_another(
    shop: RulesNlu, session: Session, question: str
) -> None:
    (answer,) = await ask(shop, session, question)
    assert "Market Street" not in answer


def test_the_fixed_texts_feed_the_voice_cache(shop: RulesNlu, session: Session) -> None:
    openings = shop.expect(Turn(session, "greeting"))
    assert "Hello! This is Hazel and Finch. How can I help?" in openings
    assert not any("{" in text for text in openings)
