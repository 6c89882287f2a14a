"""What a voice reads for a text: each case is a sentence a caller could hear."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.speech.normalize import normalize

ENGLISH = [
    # money
    ("It costs $3.5 today.", "It costs three dollars and fifty cents today."),
    ("$3.50", "three dollars and fifty cents"),
    ("$100,000", "one hundred thousand dollars"),
    ("$5.500", "five point five zero zero dollars"),
    ("$3.567", "three point five six seven dollars"),
    ("$0.99", "ninety-nine cents"),
    ("$1", "one dollar"),
    ("$1.01", "one dollar and one cent"),
    ("-$5", "minus five dollars"),
    ("$1.2 million", "one point two million dollars"),
    ("$5k", "five thousand dollars"),
    ("$5-$10", "five to ten dollars"),
    ("£12.50", "twelve pounds and fifty pence"),
    ("20 USD", "twenty U S dollars"),
    # figures
    ("3.14", "three point one four"),
    ("1,234,567", "one million two hundred thirty-four thousand five hundred sixty-seven"),
    ("-5", "minus five"),
    ("007", "zero zero seven"),
    ("version 1.2.3", "version one point two point three"),
    ("12.5% off", "twelve point five percent off"),
    ("10-20%", "ten to twenty percent"),
    ("3/4 of users, 1st of May, 2nd try", "three quarters of users, the first of May, second try"),
    ("2½ cups", "two and one half cups"),
    ("24/7", "twenty-four seven"),
    ("22nd", "twenty-second"),
    ("pages 5–7", "pages five to seven"),
    ("2 x 3", "two times three"),
    # temperatures and units
    ("The fever was 98.6°F.", "The fever was ninety-eight point six degrees Fahrenheit."),
    ("-5°C to +3°C", "minus five degrees Celsius to plus three degrees Celsius"),
    ("5 kg", "five kilograms"),
    ("1 km", "one kilometer"),
    ("60 mph", "sixty miles per hour"),
    # times and dates
    ("Pay $100,000 by 10:30 p.m. on Friday.", "Pay one hundred thousand dollars by ten thirty p m on Friday."),
    ("Open at 9:00.", "Open at nine o'clock."),
    ("14:05", "fourteen oh five"),
    ("9am-5pm", "nine a m to five p m"),
    ("at 10 p.m.", "at ten p m."),
    ("March 5, 2024", "March fifth, twenty twenty-four"),
    ("2024-03-05", "March fifth, twenty twenty-four"),
    ("3/5/2024", "March fifth, twenty twenty-four"),
    ("in 1995", "in nineteen ninety-five"),
    ("the 1990s", "the nineteen nineties"),
    # telephone numbers and codes
    ("Call 1-800-555-0199 now.", "Call one, eight zero zero, five five five, zero one nine nine now."),
    ("(800) 555-0199", "eight zero zero, five five five, zero one nine nine"),
    ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight"),
    ("Your order 1234 has shipped.", "Your order one two three four has shipped."),
    ("order number is 5678.", "order number is five six seven eight."),
    ("Order #A12345", "Order number A one two three four five"),
    ("A12345", "A one two three four five"),
    ("I need order 1000 units", "I need order one thousand units"),
    ("#7", "number seven"),
    ("your PIN is 0042", "your PIN is zero zero four two"),
    # abbreviations
    (
        "Dr. Smith lives on 5th St. near No. 7.",
        "Doctor Smith lives on fifth Street near Number seven.",
    ),
    ("St. Paul", "Saint Paul"),
    ("Main St.", "Main Street."),
    ("e.g. the U.S.A. office", "for example the U S A office"),
    ("AT&T and R&D", "A T and T and R and D"),
    # addresses
    ("https://example.com/a?b=1", "example dot com"),
    ("See www.example.co.uk/x.", "See example dot co dot uk."),
    ("me@example.com", "me at example dot com"),
    ("john.doe-7@mail.example.org!", "john dot doe dash seven at mail dot example dot org!"),
    # markup
    ("5 < 10 and I <3 it", "five is less than ten and I heart it"),
    ("**Bold** and *this* and `code`", "Bold and this and code"),
    ("# Title", "Title"),
    ("- first item", "first item"),
    ("1. First item", "one, First item"),
    ("✅ Done 🎉", "Done"),
    ("🎉🎉", ""),
    ("👨‍👩‍👧 👍🏽 🇬🇧", ""),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b, one, two"),
    ("[see here](http://x.y/z)", "see here"),
    ("![alt](u)", "alt"),
    ("[word](/fəˈnɛ/)", "word"),
    ("<b>bold</b>", "bold"),
    ("```py\nx=1\n```", ""),
    ("<|endofprompt|>Hello [laughter] there", "Hello there"),
    ("snake_case", "snake case"),
    ("---", ""),
    ("...", ""),
    ("wait... what?!", "wait… what?"),
    ('We said "hi" (really).', "We said hi, really."),
    ("a\x00b\u200bc", "a bc"),
    ("ok", "ok"),
    ("A", "A"),
    ("iPhone15 Pro", "iPhone fifteen Pro"),
]

MANDARIN = [
    ("你好！今天天气怎么样？很好。", "你好！今天天气怎么样？很好。"),
    ("您好，订单号A12345已发货，预计3月5日送达。", "您好，订单号A幺二三四五已发货，预计三月五日送达。"),
    ("价格是¥1,299.50，打8折。", "价格是一千二百九十九点五元，打八折。"),
    ("请拨打400-810-1234转2。", "请拨打四零零，八幺零，幺二三四转二。"),
    ("我用iPhone15 Pro Max，在Wi-Fi下很快。", "我用iPhone 十五 Pro Max，在Wi-Fi下很快。"),
    ("百分之50还是50%？", "百分之五十还是百分之五十？"),
    ("2024年3月5日下午2:30", "二零二四年三月五日下午两点半"),
    ("10500", "一万零五百"),
    ("100000001", "一亿零一"),
    ("12个", "十二个"),
    ("2个", "两个"),
    ("第2名", "第二名"),
    ("3-5天", "三到五天"),
    ("3/4", "四分之三"),
    ("温度-3°C", "温度零下三摄氏度"),
    ("验证码是4821", "验证码是四八二幺"),
    ("￥50元", "五十元"),
    ("100年前", "一百年前"),
    ("**好的**✅", "好的"),
    ("<|endofprompt|>好", "好"),
]


@pytest.mark.parametrize(("text", "spoken"), ENGLISH)
def test_english_is_read_as_people_say_it(text: str, spoken: str) -> None:
    assert normalize(text, "en-US") == spoken


@pytest.mark.parametrize(("text", "spoken"), MANDARIN)
def test_mandarin_is_read_as_people_say_it(text: str, spoken: str) -> None:
    assert normalize(text, "zh") == spoken


def test_other_languages_keep_their_figures_and_marks() -> None:
    assert normalize("**Comment** ça va ? Il est 10 h.", "fr") == "Comment ça va? Il est dix heures."


@pytest.mark.parametrize("language", ["en", "zh"])
@given(text=st.text(st.sampled_from("0123456789.,:/-$%°°F#x@a Bpm()*_|<>[]`\n一元年+~"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_figure_and_no_markup_survives(language: str, text: str) -> None:
    spoken = normalize(text, language)
    assert not set(spoken) & set("0123456789$%#*_|<>[]`~°@\n")


@pytest.mark.parametrize("language", ["en", "zh", "fr"])
@given(text=st.text(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_words_or_nothing(language: str, text: str) -> None:
    spoken = normalize(text, language)
    assert spoken == "" or any(c.isalnum() for c in spoken)
    assert "\x00" not in spoken
    assert spoken == " ".join(spoken.split())
