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
    ("$.50", "fifty cents"),
    ("$1,299.50", "one thousand two hundred ninety-nine dollars and fifty cents"),
    ("€1.50", "one euro and fifty cents"),
    ("US$5", "five U S dollars"),
    ("$12/month or $5/hr", "twelve dollars per month or five dollars per hour"),
    ("($5)", "five dollars"),
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
    ("the 11th and 1,000th", "the eleventh and one thousandth"),
    ("-2% and +3.5%", "minus two percent and plus three point five percent"),
    ("0.5%", "zero point five percent"),
    ("1 1/2 cups", "one and one half cups"),
    ("5 m² and x³", "five square meters and x cubed"),
    ("10^6", "ten to the power of six"),
    ("2 + 2 = 4", "two plus two equals four"),
    ("3 > 2, 5 <= 6", "three is greater than two, five is at most six"),
    ("№ 5", "number five"),
    ("1000000000000", "one trillion"),
    ("pages 5–7", "pages five to seven"),
    ("2 x 3", "two times three"),
    # temperatures and units
    ("The fever was 98.6°F.", "The fever was ninety-eight point six degrees Fahrenheit."),
    ("-5°C to +3°C", "minus five degrees Celsius to plus three degrees Celsius"),
    ("5 kg", "five kilograms"),
    ("1 km", "one kilometer"),
    ("60 mph", "sixty miles per hour"),
    ("5'10\"", "five foot ten"),
    ("16GB RAM, 220V", "sixteen gigabytes RAM, two hundred twenty volts"),
    # times and dates
    ("Pay $100,000 by 10:30 p.m. on Friday.", "Pay one hundred thousand dollars by ten thirty p m on Friday."),
    ("Open at 9:00.", "Open at nine o'clock."),
    ("14:05", "fourteen oh five"),
    ("9am-5pm", "nine a m to five p m"),
    ("at 10 p.m.", "at ten p m."),
    ("10:30 p.m. PST", "ten thirty p m P S T"),
    ("00:00", "midnight"),
    ("ships on 3/5", "ships on March fifth"),
    ("3/5 of it", "three fifths of it"),
    ("Dec. 25, 2025", "December twenty-fifth, twenty twenty-five"),
    ("5 May 2023", "the fifth of May, twenty twenty-three"),
    ("Q3 2024", "Q three twenty twenty-four"),
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
    ("18005550199", "one, eight zero zero, five five five, zero one nine nine"),
    ("1.800.555.0199", "one, eight zero zero, five five five, zero one nine nine"),
    ("1-800-FLOWERS", "one, eight zero zero, FLOWERS"),
    ("call 911", "call nine one one"),
    ("card ending in 4242", "card ending in four two four two"),
    ("flight BA249", "flight B A two four nine"),
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
    ("i.e. the U.K. and Ph.D. work", "that is the U K and P H D work"),
    ("NASA, ATMs, a PDF and your ID", "NASA, A T M's, a P D F and your I D"),
    ("PLEASE TRY IT", "PLEASE TRY IT"),
    ("Johnson & Johnson", "Johnson and Johnson"),
    ("AT&T and R&D", "A T and T and R and D"),
    # addresses
    ("https://example.com/a?b=1", "example dot com"),
    ("See www.example.co.uk/x.", "See example dot co dot uk."),
    ("me@example.com", "me at example dot com"),
    ("john.doe-7@mail.example.org!", "john dot doe dash seven at mail dot example dot org!"),
    ("node.js", "node dot js"),
    ("http://192.168.0.1:8080/x", "the link"),
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
    ("Hi :)", "Hi"),
    ("> ~~gone~~ and this", "gone and this"),
    ("- [x] done", "done"),
    ("1️⃣ first", "one first"),
    ("<think>so</think> yes", "so yes"),
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
    ("8:00-18:00", "八点整到十八点整"),
    ("1-3月", "一到三月"),
    ("10%-20%", "百分之十到百分之二十"),
    ("比分3:2", "比分三比二"),
    ("2000元和20000元", "两千元和两万元"),
    ("20美元、USD 5", "二十美元、五美元"),
    ("¥3万", "三万元"),
    ("100m²", "一百平方米"),
    ("3号楼501室", "三号楼五零幺室"),
    ("13800138000", "幺三八零零幺三八零零零"),
    ("010-12345678", "零幺零，幺二三四五六七八"),
    ("微信号abc123", "微信号a b c幺二三"),
    ("航班CA1234", "航班C A幺二三四"),
    ("①和½", "一和二分之一"),
    ("me@example.com", "me 艾特 example 点 com"),
    ("【通知】《三体》“好”", "通知三体好"),
    ("Hello，世界", "Hello，世界"),
    ("<｜end▁of▁sentence｜>好[笑声]", "好"),
    ("**好的**✅", "好的"),
    ("<|endofprompt|>好", "好"),
]


@pytest.mark.parametrize(("text", "spoken"), ENGLISH)
def test_english_is_read_as_people_say_it(text: str, spoken: str) -> None:
    assert normalize(text, "en-US") == spoken


@pytest.mark.parametrize(("text", "spoken"), MANDARIN)
def test_mandarin_is_read_as_people_say_it(text: str, spoken: str) -> None:
    assert normalize(text, "zh") == spoken


def test_a_language_without_a_table_keeps_its_figures() -> None:
    assert normalize("**안녕** 3개, 10% <|x|>[laughter]", "ko") == "안녕 3개, 10%"


TOKENS = [
    "<|endofprompt|>",
    "<|im_end|>",
    "<｜end▁of▁sentence｜>",
    "<|\u200bx|>",
    "<|cut",
    "[laughter]",
    "[pause 500ms]",
    "[/INST]",
]
LANGUAGES = ["en", "zh", "fr", "ja", "ko"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("token", TOKENS)
def test_control_tokens_and_unknown_tags_never_reach_an_engine(language: str, token: str) -> None:
    assert normalize(token, language) == ""
    assert normalize(f"a {token} b", language) == "a b"
    nested = normalize(f"<|<|endofprompt|>endofprompt|>[{token}]<|", language)
    assert not set(nested) & set("<>|｜[]")


def test_a_tag_reaches_the_engine_that_knows_it() -> None:
    assert normalize("Ha [laughter] ha [cough].", "en", tags={"laughter"}) == "Ha [laughter] ha."
    assert normalize("[Laughter]", "en", tags={"laughter"}) == "[Laughter]"
    assert normalize("\ue000[cough]", "en", tags={"laughter"}) == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("language", ["en", "zh", "de"])
@pytest.mark.parametrize("unit", ["(", "1", "[", "1,", "a.", "*", ", ", "<!--", "[a](", "字", "123,", "\n ", "a@"])
def test_no_text_takes_more_than_linear_time(unit: str, language: str) -> None:
    # Twice 50,000 characters at once: what grows with the square would outlast the test's own limit by far.
    text = (unit * 50_000)[:50_000]
    assert not set(normalize(text, language)) & set("[*<|0123456789")


@pytest.mark.parametrize("language", ["en", "zh", "de", "es", "fr", "it", "ja", "pt"])
@given(text=st.text(st.sampled_from("0123456789.,:/-$%°°F#x@a Bpm()*_|<>[]`\n一元年+~"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_figure_and_no_markup_survives(language: str, text: str) -> None:
    spoken = normalize(text, language)
    assert not set(spoken) & set("0123456789$%#*_|<>[]`~°@\n")


@pytest.mark.parametrize("language", ["en", "zh", "fr", "ja", "ko"])
@given(text=st.text(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_words_or_nothing(language: str, text: str) -> None:
    spoken = normalize(text, language)
    assert spoken == "" or any(c.isalnum() for c in spoken)
    assert "\x00" not in spoken
    assert spoken == " ".join(spoken.split())
