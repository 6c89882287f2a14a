"""English words that tell whether a turn is over. Data only; `agent.listening.wording` says what each table means."""

from __future__ import annotations

from agent.listening.wordtables import WordTables, phrases

__all__ = ["ENGLISH"]

ENGLISH = WordTables(
    fillers=phrases(
        "um, umm, uh, uhh, er, err, erm, em, emm, emmm, hm, hmm, hmmm, mm, you know, i mean, let me see, let's see, "
        "let me think, how do i say, what's it called, hold on, one second, one moment, just a moment, just a second, "
        "give me a second, wait, like"
    ),
    open_words=phrases(
        # Articles, determiners and possessives: a noun follows.
        "a, an, the, my, your, our, their, its, every, "
        # Conjunctions: a clause or its second half follows.
        "and, or, but, nor, because, cause, if, unless, although, though, while, whereas, until, till, since, whether, "
        "than, as, that's because, and then, so that, "
        # Prepositions that English does not strand.
        "of, from, into, onto, upon, during, between, among, toward, towards, without, within, regarding, per, via, "
        # Subjects, contractions and degree words: a verb or an adjective follows.
        "i, he, she, we, they, i'm, i've, i'd, i'll, we're, we've, we'd, we'll, you're, you've, you'll, he's, she's, "
        "it's, that's, there's, there is, there are, they're, they've, they'll, who's, what's, where's, let's, very, "
        "quite, too many, also, maybe, perhaps, probably, basically, actually, especially, called, named, "
        # Verbs that do not end anything.
        "to, want to, need to, like to, going to, have to, gonna, wanna, gotta, am, isn't it that, "
        "mr, mrs, ms, dr, saint"
    ),
    half_open_words=phrases(
        # They end a turn when stranded or elliptic ("what is it for", "yes I am", "turn it on") and mostly do not.
        "is, are, was, were, be, been, being, will, would, can, could, should, shall, may, might, must, do, does, did, "
        "have, has, had, can't, won't, don't, doesn't, didn't, isn't, aren't, for, with, at, by, in, on, about, after, "
        "before, under, over, through, against, around, near, that, which, who, whom, whose, this, these, those, his, "
        "her, some, any, no, not, so, then, when, where, what, how, why, just, only, even, other, another, each, "
        "more, most, less, much, many, few, want, need, get, got, make, say, said, tell, give, show, put, take"
    ),
    open_phrases=phrases(
        "my number is, number is, the number is, phone number is, order number is, account number is, my name is, "
        "name is, last name is, first name is, address is, my address is, email is, my email is, email address is, "
        "date of birth is, birthday is, password is, code is, zip code is, postcode is, it is, this is, that is, "
        "here is, i want, i need, i would like, i'd like, would like to, i'm calling about, i'm calling because, "
        "calling about, i'm looking for, looking for, i have a, can you, could you, would you, can i, could i, may i, "
        "do you have, what about, how about, the problem is, the thing is, the question is, i was wondering if, "
        "i think, i guess, i was, in order to, as well as, such as, for example, it starts with, ending in"
    ),
    answers=phrases(
        "yes, yeah, yep, yup, yes please, yes i am, yes i do, yes it is, yes that's right, that's right, correct, "
        "that's correct, exactly, right, sure, of course, okay, ok, all right, alright, fine, sounds good, great, "
        "perfect, please do, go ahead, no, nope, nah, no thanks, no thank you, no i don't, no i'm not, not really, "
        "not yet, never, i don't know, i'm not sure, not sure, no idea, maybe, thanks, thank you, thank you very much, "
        "thanks a lot, bye, goodbye, bye bye, hello, hi, hey, good morning, that's all, that's it, that is all, "
        "nothing else, nothing, neither, both, stop, cancel, help, repeat that, say that again, operator, agent"
    ),
    closers=phrases(
        "please, thanks, thank you, right now, today, tomorrow, instead, anymore, as well, if possible, if you can, "
        "that's all, that's it, for me, to me, goodbye, bye, sir, madam, ma'am"
    ),
    subordinators=phrases(
        "when, whenever, if, although, though, while, because, since, unless, as soon as, before, after, even if, once"
    ),
    yes_no_openers=phrases(
        "is, are, am, was, were, do, does, did, have, has, had, can, could, will, would, shall, should, may, might, "
        "isn't, aren't, wasn't, weren't, don't, doesn't, didn't, haven't, hasn't, can't, couldn't, won't, wouldn't, "
        "shouldn't, so is, and is, and do, ready to, anything else, right, correct, okay"
    ),
    yes_no_endings=phrases("right, correct, okay, ok, is that right, is that correct, isn't it, or not, yes or no"),
    question_openers=phrases(
        "what, what's, when, where, where's, who, who's, whose, why, how, which, is, are, do, does, did, can, could, "
        "will, would, should, have, has, may, isn't, aren't, don't, doesn't, tell me, show me, give me"
    ),
    number_asked=phrases("number, digits, code, zip, postcode, pin, date of birth, phone, telephone"),
    name_asked=phrases("your name, full name, last name, first name, surname, who am i speaking, who is calling"),
    spelling_asked=phrases("spell, letters, letter by letter"),
)
