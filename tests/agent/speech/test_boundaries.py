"""Where sentences end, language by language."""

from __future__ import annotations

import itertools

import pytest

from agent.speech.chunker import Clause, ClauseChunker

CASES = [
    ("en", "Ph.D. students pay. NASA. Apollo flew.", ["Ph.D. students pay.", "NASA.", "Apollo flew."]),
    ("en", "See pp. 5 and 6.", ["See pp. 5 and 6."]),
    ("en", "Is it OK. Apollo is.", ["Is it OK.", "Apollo is."]),
    ("en", "مرحبا؟ نعم۔", ["مرحبا؟", "نعم۔"]),
    (
        "fr",
        "M. Dupont arrive à 10 h. Il habite au 5 av. Foch, n° 7.",
        ["M. Dupont arrive à 10 h.", "Il habite au 5 av. Foch, n° 7."],
    ),
    ("fr", "« Bonjour ! » Il dit : « Oui. » Voilà.", ["« Bonjour ! »", "Il dit : « Oui. »", "Voilà."]),
    ("fr", "Le prix est de 1 299,50 €. C'est tout.", ["Le prix est de 1 299,50 €.", "C'est tout."]),
    (
        "es",
        "¿Qué tal? ¡Muy bien! El Sr. García vive en la Avda. Mayor.",
        ["¿Qué tal?", "¡Muy bien!", "El Sr. García vive en la Avda. Mayor."],
    ),
    (
        "es",
        "Cuesta 3.50 € aprox. por día. Uds. pueden venir a las 10 p. m. El lunes no.",
        ["Cuesta 3.50 € aprox. por día.", "Uds. pueden venir a las 10 p. m.", "El lunes no."],
    ),
    (
        "de",
        "Dr. Müller kommt am 3. Mai um 10 Uhr. Er wohnt z. B. im 3. Stock. Es sind 5. Danach geht es.",
        ["Dr. Müller kommt am 3. Mai um 10 Uhr.", "Er wohnt z. B. im 3. Stock.", "Es sind 5.", "Danach geht es."],
    ),
    ("de", "Hauptstr. 5 ist hier. Nr. 7 auch.", ["Hauptstr. 5 ist hier.", "Nr. 7 auch."]),
    ("it", "Il Sig. Rossi arriva alle 10. Poi va via.", ["Il Sig. Rossi arriva alle 10.", "Poi va via."]),
    (
        "pt",
        "O Sr. Silva mora na Av. Paulista. Custa R$ 3,50. Obrigado!",
        ["O Sr. Silva mora na Av. Paulista.", "Custa R$ 3,50.", "Obrigado!"],
    ),
    (
        "ja",
        "こんにちは！今日は3月5日です。「はい。」と言いました。",
        ["こんにちは！", "今日は3月5日です。", "「はい。」", "と言いました。"],
    ),
    ("zh", "你好,今天天气怎么样?很好.", ["你好,", "今天天气怎么样?", "很好."]),
    ("zh", "请联系Dr. Smith，他在U.S. office。谢谢", ["请联系Dr. Smith，", "他在U.S. office。", "谢谢"]),
    ("hi", "नमस्ते। आप कैसे हैं? ठीक।", ["नमस्ते।", "आप कैसे हैं?", "ठीक।"]),
]


def chunk(text: str, language: str, pieces: list[str]) -> list[Clause]:
    chunker = ClauseChunker(language)
    assert text == "".join(pieces)
    return [*itertools.chain.from_iterable(map(chunker.push, pieces)), *chunker.flush()]


@pytest.mark.parametrize(("language", "text", "ends"), CASES)
def test_sentences_end_where_they_end(language: str, text: str, ends: list[str]) -> None:
    whole = chunk(text, language, [text])
    assert [clause.text.strip() for clause in whole] == ends
    assert chunk(text, language, list(text)) == whole
    for at in range(len(text)):
        assert chunk(text, language, [text[:at], text[at:]]) == whole


@pytest.mark.parametrize("tail", ["p.m.", "o'clock", "million", "kg"])
def test_a_long_sentence_is_not_cut_between_a_number_and_its_word(tail: str) -> None:
    for lead in range(20, 60):
        text = "x" * lead + f" for you it is about 10 {tail} or so they say here every day in the week of the year" * 3
        clauses = chunk(text, "en", [text])
        assert len(clauses) > 1
        assert not any(clause.text.rstrip().endswith(" 10") for clause in clauses)
