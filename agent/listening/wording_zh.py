"""Mandarin words that tell whether a turn is over. Data only; `agent.listening.wording` says what each table means."""

from __future__ import annotations

from agent.listening.wordtables import WordTables, phrases

__all__ = ["MANDARIN"]

MANDARIN = WordTables(
    fillers=phrases("嗯,呃,额,唔,那个,这个,就是,就是说,然后,怎么说,怎么说呢,我想想,让我想想,等一下,等等,稍等"),
    open_words=phrases(
        "和,跟,与,以及,或,或者,还是,但,但是,可是,不过,因为,所以,如果,要是,虽然,而且,并且,还有,另外,比如,"
        "比如说,除了,关于,对于,根据,按照,为了,由于,把,被,给,在,从,向,往,比,叫,姓,我,我们,他们,我的,你的,"
        "您的,他的,她的,我们的,我想,我要,想要,需要,请,请问,麻烦,能不能,可不可以,是不是,有没有,一个,这,那,很,"
        "非常,最,也,都,就,又,再,才,正在"
    ),
    half_open_words=phrases("的,是,到,对,用,想,要,会,能,地,得,有,去,来,做,说,第,两,几,每"),
    open_phrases=phrases(
        "号码是,电话是,电话号码是,手机号是,手机号码是,订单号是,账号是,密码是,名字是,我叫,名字叫,地址是,邮箱是,"
        "生日是,验证码是,我想要,我想问,我想问一下,我打电话是,问题是,我觉得,我在找,你能,您能,帮我"
    ),
    answers=phrases(
        "是,是的,是啊,对,对的,对啊,没错,好,好的,好啊,好吧,行,可以,嗯嗯,当然,没问题,不,不是,不用,不用了,"
        "不要,不行,不对,不可以,没有,没有了,没了,不知道,不清楚,谢谢,谢谢你,谢谢您,再见,拜拜,你好,您好,喂,就这些,"
        "就这样,停,取消,人工,转人工"
    ),
    closers=phrases("吗,呢,吧,啊,呀,嘛,啦,了,哦,喔,呦,哟,谢谢,好吗,可以吗,行吗,对吗,一下,再见,怎么办"),
    subordinators=phrases("如果,要是,因为,虽然,由于,当,除非,假如"),
    yes_no_openers=phrases("是不是,有没有,要不要,能不能,可不可以,需不需要,会不会,是否,请问是否"),
    yes_no_endings=phrases("吗,对吗,好吗,是吗,可以吗,行吗,对不对,是不是,好不好,对吧,吧"),
    question_openers=phrases("什么,怎么,为什么,哪,哪里,哪个,谁,多少,几点,什么时候,请问"),
    number_asked=phrases("号码,电话,手机号,订单号,账号,密码,验证码,身份证,卡号,数字,邮编"),
    name_asked=phrases("名字,姓名,贵姓,怎么称呼"),
    spelling_asked=phrases("拼写,怎么拼,字母"),
)
