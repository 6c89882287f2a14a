"""What languages say that are read by table alone."""

from __future__ import annotations

import pytest

from agent.speech.normalize import normalize
from agent.speech.tables import known_languages, table

CASES = {
    "fr": [
        (
            "Le prix est de 1 299,50 €.",
            "Le prix est de mille deux cent quatre-vingt-dix-neuf euros cinquante centimes.",
        ),
        ("le 1er mai 2024", "le premier mai deux mille vingt-quatre"),
        ("le 3/5/2024", "le trois mai deux mille vingt-quatre"),
        ("à 10h30, puis 1 h", "à dix heures trente, puis une heure"),
        ("3,5 % et -2 %", "trois virgule cinq pour cent et moins deux pour cent"),
        ("de 10-20 %", "de dix à vingt pour cent"),
        ("le 21e étage, la 1re fois", "le vingt et unième étage, la première fois"),
        ("Appelez le 01 23 45 67 89.", "Appelez le zéro un, deux trois, quatre cinq, six sept, huit neuf."),
        ("Votre commande A12345", "Votre commande A un deux trois quatre cinq"),
        ("M. Dupont, n° 7, p. ex.", "Monsieur Dupont, numéro sept, par exemple."),
        ("5 km à -3 °C", "cinq kilomètres à moins trois degrés"),
        ("moi@exemple.fr", "moi arobase exemple point fr"),
        ("Comment ça va ? Très bien !", "Comment ça va? Très bien!"),
    ],
    "es": [
        ("1.299,50 € el 1 de mayo", "mil doscientos noventa y nueve euros con cincuenta céntimos el primero de mayo"),
        ("a las 10:30", "a las diez y media"),
        ("Llame al 900 123 456.", "Llame al nueve cero cero, uno dos tres, cuatro cinco seis."),
        ("Sr. García, 2.º piso, 3ª vez", "señor García, segundo piso, tercera vez"),
        ("3,14 o 3.14", "tres coma catorce o tres coma catorce"),
        ("EE. UU. hoy", "Estados Unidos hoy"),
        ("el 50%", "el cincuenta por ciento"),
    ],
    "de": [
        (
            "Der Preis beträgt 1.299,50 € am 3. Mai.",
            "Der Preis beträgt eintausendzweihundertneunundneunzig Euro und fünfzig Cent am dritten Mai.",
        ),
        ("um 10:30 Uhr, um 8 Uhr", "um zehn Uhr dreißig, um acht Uhr"),
        ("3. Mai", "dritter Mai"),
        ("Am 03.05.2024", "Am dritten Mai zweitausendvierundzwanzig"),
        ("z. B. im 3. Stock", "zum Beispiel im dritten Stock"),
        ("ca. 10-20 km", "circa zehn bis zwanzig Kilometer"),
        ("Hauptstr. 5", "Hauptstraße fünf"),
        ("0800 123 4567", "null acht null null, eins zwei drei, vier fünf sechs sieben"),
        ("1 €, 3,14", "ein Euro, drei Komma eins vier"),
    ],
    "it": [
        ("Costa 3,50 €", "Costa tre euro e cinquanta centesimi"),
        ("alle 10:30", "alle dieci e mezza"),
        ("il 2º piano, la 3ª volta", "il secondo piano, la terza volta"),
        ("Sig.ra Rossi, il 1 maggio", "signora Rossi, il primo maggio"),
        ("-5 °C", "meno cinque gradi"),
    ],
    "pt": [
        ("R$ 1.299,50", "mil duzentos e noventa e nove reais e cinquenta centavos"),
        ("às 10h30, às 10 horas", "às dez e meia, às dez horas"),
        ("em 1 de maio de 2024", "em primeiro de maio de dois mil e vinte e quatro"),
        ("16 kg", "dezesseis quilos"),
        ("0800 123 4567", "zero oito zero zero, um dois três, quatro cinco seis sete"),
    ],
    "ja": [
        ("価格は¥1,299です。", "価格は千二百九十九円です。"),
        ("3月5日10:30に届きます。", "三月五日十時半に届きます。"),
        ("2024-03-05", "二千二十四年三月五日"),
        ("400-810-1234", "四ゼロゼロ、八一ゼロ、一二三四"),
        ("注文番号A12345", "注文番号A一二三四五"),
        ("50%、-5°C", "五十パーセント、マイナス五度"),
    ],
}


@pytest.mark.parametrize(
    ("language", "text", "spoken"), [(tag, *case) for tag, cases in CASES.items() for case in cases]
)
def test_figures_and_signs_become_words(language: str, text: str, spoken: str) -> None:
    assert normalize(text, language) == spoken


def test_every_table_is_read_in_a_test() -> None:
    assert known_languages() == {*CASES, "en", "zh"}


@pytest.mark.parametrize("language", sorted(CASES))
def test_every_currency_and_unit_has_its_forms(language: str) -> None:
    data = table(language)
    for sign, names in data["currencies"].items():
        assert len(names) in (2, 4), sign
        assert not any(c.isdigit() or c == sign for c in normalize(f"1,50 {sign}", language)), sign
    for sign, names in data["units"].items():
        assert normalize(f"1 {sign}", language) == names[0]
        assert normalize(f"5 {sign}", language).endswith(names[1])


def test_a_tag_falls_back_to_its_language() -> None:
    assert normalize("50 %", "fr-CA") == normalize("50 %", "fr")
