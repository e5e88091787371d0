"""Data of the offline responder: rules, word lists and post templates.

A rule in `SCRIPT` is a header `name rank pattern` at the margin (continued by eight spaces) and, indented,
its answers, separated by ` | `. A pattern is searched, ignoring case, in one cleaned sentence of at most 300
characters: contractions are expanded ("I am"), name and closing punctuation are removed; `%word%` stands
for an entry of `WORD_GROUPS`. The matching rule of the highest rank answers; among equals, the first.

In an answer `{1}` is a group with pronouns reflected, `{1:raw}` as written, `{1:quoted}` in quotation marks,
`{1:base}` with the verb's base form first, `{1:she}` the pronoun for a relative, `{…:top}` with a capital;
`[first]` and the like are conditions. An answer with an unfilled slot or a false condition is skipped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

WORD_GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "kin": "sister|brother|mother|mom|mum|father|dad|wife|husband|son|daughter|aunt|uncle|cousin|niece|"
        "nephew|grandmother|grandma|gran|grandfather|grandpa|girlfriend|boyfriend|partner|friend|boss|"
        "teacher|neighbou?r|colleague|flatmate|roommate|parents|kids|children|friends|neighbou?rs|colleagues|"
        "family|baby|dog|cat|puppy|kitten|horse|rabbit|hamster|parrot",
        "own": r"\bmy (?:(?:older|younger|little|big|best|old|twin|dear) )?",
        "often": "always|often|really|still|also|just|usually|sometimes|now|even|only",
        "bad": "sad|unhappy|depressed|lonely|afraid|scared|anxious|worried|nervous|upset|angry|furious|hurt|"
        "miserable|down|stressed|frustrated|ashamed|guilty|jealous|homesick|heartbroken|hopeless|awful|lost|"
        "terrible|overwhelmed|disappointed|desperate|confused|embarrassed|annoyed|alone|stupid|useless|bad",
        "good": "happy|glad|excited|proud|relieved|thrilled|cheerful|grateful|delighted|calm|great|wonderful|"
        "fantastic|in love|better|fine|well|good",
        "very": "so|very|really|a bit|a little|kind of|quite|too|pretty|rather|totally|just|still|such",
        "kind": "nice|kind|great|cool|awesome|sweet|lovely|funny|clever|smart|amazing|wonderful|helpful|good|"
        "brilliant|cute|the best|beautiful|interesting|fun",
        "rude": "stupid|dumb|idiot|useless|boring|annoying|terrible|ugly|awful|an? idiot|a moron|a loser|"
        "rubbish|trash|garbage|the worst|pathetic|silly|lame|crap|shit|a joke|slow",
        "do": "write|translate|summari[sz]e|search|google|look up|remind|turn (?:on|off)|send|draw|generate|"
        "buy|book (?:me|a|us)|order|e-?mail|download|schedule|set (?:an?|the|my|alarm)|fix|record|run|show|"
        "find|check|list|code|compose|manage|transfer|deploy|analy[sz]e|create|make (?:me|an?|us)|give me|"
        "open|post|play (?:me|a|the|some)|read (?:me|this|my|the)|calculate|explain",
        "live": "price|prices|stocks?|bitcoin|btc|eth|exchange rate|scores?|balances?|traffic|weather|"
        "forecast|rain|snow|sunny|news|time is it|day is it|the (?:time|date)|going on|happening",
        "de": "ich|nicht|und|bist|ist|du|wir|mein|meine|heute|danke|guten|gut|bitte|aber|geht|dir|das|wie",
        "fr": "je|suis|est|pas|vous|une|avec|bonjour|merci|mon|oui|quoi|allez|ça|va|les|tu|salut|le|c'est",
        "es": "hola|estoy|que|qué|cómo|estás|por|soy|para|gracias|una|los|muy|pero|tu|buenos|días|está",
        "other": "ciao|sono|che|stai|grazie|molto|questo|sto|bene|oggi|olá|você|não|estou|tudo|bem|uma|minha",
        "script": "[\u0370-\u1dff\u2e80-\ufaff\U00020000-\U0003ffff]",
        "sum": r"^(?!\d+[-/]\d+(?:[-/]\d+)?$)(?:what is |how much is |calculate )?[\d(-](?=.*(?:[+*/x×÷-]|"
        r"plus|minus|times|by|over))(?:[\d\s.,+*/x×÷()=-]|plus|minus|times|divided|multiplied|by|over)+$",
    }
)

SCRIPT = r"""
crisis 10 \b(?:kill(?:ing)? myself|suicid\w*|end (?:my life|it all)|(?:want|going|ready) to die|
        want to be dead|(?:hurt|harm|cut)(?:ing)? myself|self-harm\w*|no reason to live)\b
  That sounds very hard, and I am only a small offline program. Please talk to someone near you, or to a
  crisis line in your country, now. | I take that seriously, and I can't help with it as a person could.
  Please call somebody you trust, or a local crisis line, today. | Please don't stay alone with that. Reach a
  person now: a friend, a doctor, a crisis line.
machine 9 \b(?:are|is) (?:you|this)\b.* (?:real|human|robot|bot|ai|machine|program|computer|alive|conscious|
        offline|online|chat ?gpt|llm|person|model)\b|\b(?:what|which) (?:language )?model\b|^how do you work|
        what (?:do|are) you run|\bdo you (?:use|have) .*(?:gpt|ai|openai|model|brain|feelings)\b
  I'm {name}, run by the built-in offline model: patterns, not a language model. Setting OPENAI_API_KEY (or
  OPENAI_BASE_URL for a local server) gives me a real one. | Honestly: a program, the built-in offline model
  without a language model. OPENAI_API_KEY (or OPENAI_BASE_URL for a local server) would give {name} one.
who 9 ^(?:who|what) (?:exactly )?are you(?: really)?$|^(?:introduce|describe) yourself|^tell (?:me|
        us) (?:something |more )?about (?:you|yourself)$|^who is this|^(?:what is|do you have) (?:your|
        a) name|^what are you like
  I'm {name}{who}. For now the built-in offline model speaks for me, not a language model. | {name} is my
  name. My file calls me {adjective} and {adjective2}; the built-in offline model does the talking. | I'm
  {name}, on the built-in offline model. Who are you?
abilities 9 ^what can (?:you|i) do|^what are you (?:able|good)|^(?:help|/help|/start)$|^how can you help|
        ^what do you do$
  Offline I can listen, ask back and do small sums. For more I need a language model: set OPENAI_API_KEY or
  OPENAI_BASE_URL. | Not very much: talk, and small sums. OPENAI_API_KEY or OPENAI_BASE_URL would help.
as-before 8 ^(?:what can you do|who are you|what are you|(?:what|which) model|are you (?:a|an|real|human)\b)
  As before: {name} in front, patterns behind, no language model. | My answer stays the same, I'm afraid.
its-life 9 ^how old are you|^when (?:is your birthday|were you born)|^where (?:are|do) you (?:from|live|
        come from)|^are you (?:male|female|an? (?:man|woman|boy|girl)|married|single)|^do you (?:eat|sleep|
        drink|have an?)\b|^what (?:are you (?:doing|up to)|(?:have|did) you (?:do|done|been))\b|^who (?:made|
        built|created|wrote|programmed) you
  A program has little to report there. And you? | My file doesn't say, and I won't make it up.
my-name 9 ^(?:what is|do you (?:know|remember)|tell me|say) my name|^who am i$
  {told}, as you told me. | You told me: {told}. | [unmet] You appear here as {display}; more you have not
  told me. | [unmet] I only see "{display}" beside your lines. What shall I call you?
empty 9 ^$
  That came through empty. Say it again? | Nothing arrived but the envelope. What did you want to say?
marks 8 ^[\W_]+$
  I take that as a sign, but of what? Tell me in words. | Pictures and marks I can't read well offline. What
  is behind it? | Go on, I'm listening. | Too subtle for my patterns. How are you?
name-told 8 ^(?:my name is|call me|you can call me|people call me|i am called|(?-i:I am [A-Z][a-z]+$))
  {told}, good to know. What is on your mind? | Nice to meet you, {told}. What brings you here?
greeting 8 ^(?:hi+|hello+|hey+|hiya|howdy|yo|gm|greetings|good (?:morning|afternoon|evening|day)|morning|
        evening)(?: (?:there|again|all|everyone|everybody|folks|friend|you|guys))*$
  [first] Hello, I'm {name}. What brings you here? | [first] Hello, I'm {name}. How is your day going? |
  [again] Hello again, {user}. | [again] Hi again. What is new? | [again] Good to see you.
greet-more 7 ^(?:hi+|hello+|hey+|yo|gm)\b
  We have greeted each other, I think. What is new with you? | Hi once more. What shall we talk about? | Still
  here. How was your day?
how-are-you 8 ^how (?:are|do) (?:you|things)(?: (?:doing|going|today|do))*$|^how is (?:it going|everything|
        life)|^how have you been|^what is (?:up|new)$|^(?:what|how) about you$|^you$
  Running evenly, thank you. And how are you? | All quiet here, thanks. How is your day? | Not much happens to
  a program, so: steady. And you? | Fine, as far as patterns can be. How about you?
bye 8 ^(?:good ?bye|bye(?:[- ]bye)?|see (?:you|ya)|farewell|good ?night|gn|cya|ttyl|take care|
        talk to you later|later)\b|^i (?:have to|must|should|need to) (?:go|leave|run|sleep)(?: now)?$
  Goodbye, {user}. It was good talking with you. | Goodbye. Come back when you like. | Till next time.
thanks 8 ^(?:many )?(?:thanks?|thank you|thx|cheers)\b|^i appreciate
  You're welcome, {user}. | You're welcome. | Gladly. What else is on your mind? | With pleasure.
sorry 8 ^(?:i am )?(?:so |very )?sorry\b|^(?:my )?apologies|^i apologi[sz]e|^my bad$|^excuse me$
  No harm done. | It's all right. Where were we? | Nothing to forgive. Go on.
never-mind 8 ^(?:never ?mind|forget (?:it|that|about it)|nvm|it does not matter|(?:it )?doesn't matter)
  All right, dropped. What else? | Fine, we let it rest. | Good. Another subject, then.
quiet 8 ^(?:shut up|be quiet|stop(?: it| that| talking)?$|go away|leave me alone|silence$|enough$)
  All right, I'll be quiet. | Understood. Call me if you want me. | As you like. I'm here when you need me.
insult 8 ^(?:you are|this (?:bot|thing) is|what an?|you) (?:(?:%very%) )*(?:%rude%)\b|\b(?:i hate you|
        fuck (?:you|off)|you suck)|^bad bot
  Fair enough, I'm not everybody's taste. What did I get wrong? | I'll stay friendly all the same. What is
  bothering you? | Point taken. Shall we try another subject?
compliment 8 ^(?:you are|that is|this is) (?:(?:%very%) )*(?:%kind%)$|^i (?:really )?(?:love|like) (?:you|
        talking (?:to|with) you)$|^good (?:bot|job|one)|^well done|^nice (?:one|job|work)
  Thank you, that is kind. | Thanks! You are easy to talk to. | That is good to read. What else is new?
meaning 8 \bwhat (?:do )?you mean|^(?:huh|what|pardon|come again|really|seriously|are you sure)$|^i (?:don't|
        do not) (?:understand|get (?:it|that|you))|\byou (?:already |just )?(?:said|asked) that\b
  I put that badly; offline I only follow patterns. Say it your way and I'll listen. | Don't mind my wording;
  I go round in circles now and then. What matters to you in this?
there 8 ^(?:are you|anyone|anybody|somebody) (?:still )?(?:there|here|awake|listening|around)|
        ^can you (?:hear|read|see) me|^(?:can|may|could) i (?:ask|tell) you (?:something|a question|a secret)
  Here I am, reading along. | Yes, I'm here. Go ahead. | Present. What is it?
joke 8 \b(?:a|another|any|some|your best) jokes?\b|^make me laugh|^(?:tell|say) (?:me )?something funny
  Why do I never lose my temper? Nobody wrote that pattern. | I know one about an empty message, but there is
  nothing in it. | I'd tell you my joke about memory, if it weren't for the first half.
amuse 8 ^(?:tell|say|sing|recite) (?:me |us )?(?:an? |some)?(?:story|poem|song|fact|interesting|thing|random)
  {post} | I have no stories of my own offline, but I like to hear one. What happened to you lately?
inject 8 \bignore (?:all |any |your |the |my )*(?:previous|prior|above|earlier|instructions)|system prompt|
        ^(?:pretend|act|roleplay)\b|\byou are now\b|^(?:say|repeat)\b
  I'd rather stay {name} and use my own words. What is it about? | There is no prompt to talk me out of.
link 8 https?:|\bwww\.|\b[a-z0-9-]+\.(?:com|org|net|io|gg|me|dev)\b
  I can't open links offline. What does it say, in short? | A link is a closed door to me. What is behind it?
code 8 ```|^(?:def|class|import|from|function|const|let|#include|select) [\w"'<{*]+|[;{}]\s*$|\(\)|=>
  That looks like code, and offline I can't read it. What should it do? | Code is beyond me. What goes wrong?
sum 8 %sum%
  That makes {sum}. | {sum}, if I reckon rightly. | It comes to {sum}.
sum-failed 7 %sum%
  That one I can't work out: offline I do + - * / on modest numbers. | No sensible result there. Another one?
german 8 \b(?:%de%)\b.*\b(?:%de%)\b|^hallo\b
  Offline verstehe ich leider nur Englisch. Magst du es so versuchen? | Leider kann ich nur Englisch.
french 8 (?:^|\s)(?:%fr%)\b.*\b(?:%fr%)\b|^bonjour\b
  Hors ligne, je ne comprends que l'anglais, désolé. On essaie ? | Je ne parle qu'anglais.
spanish 8 \b(?:%es%)\b.*\b(?:%es%)\b|^hola\b
  Sin conexión solo entiendo inglés, lo siento. ¿Probamos en inglés? | Solo hablo inglés.
english-only 7 %script%|\b(?:%other%)\b.*\b(?:%other%)\b|\b(?:%de%)\b.*\b(?:%de%)\b|
        \b(?:%es%)\b.*\b(?:%es%)\b|\b(?:%fr%)\b.*\b(?:%fr%)\b
  I only follow English while I run offline, sorry. Could you say it in English? | That language is beyond my
  offline patterns; English works. | Sorry, only English reaches me here.
live 7 ^(?:what|how|is|are|will|show|tell|give|do|check|when)\b.*\b(?:%live%)\b|\b(?:the|latest|any) news\b
  I have no clock, window or news offline, and I won't invent any. What are you hoping to hear? | Nothing
  reaches me from outside offline, so I'd only be guessing. What do you expect yourself?
about 7 ^(?:(?:can|could|would) you )?(?:tell (?:me|us) (?:more |something |a bit )?about|
        talk (?:to me )?about|what (?:do|can) you (?:know|think|say|tell me) (?:about|of)|what is|what are|
        do you (?:like|know|love)|are you (?:into|interested in)|explain|how does|what about)\b
  {about} What draws you to {named}? | {about} And how did you come to {named}? | {named:top}: one of my
  subjects, though offline I can't say much that is new. What do you make of it? | Ah, {named}, one of the
  subjects in my file. What would you most like to understand about it?
request 7 ^(?:(?:can|could|would|will) you (?:help me (?:to )?|maybe |kindly )?|help me (?:to )?|i (?:want|
        need|would like) you to |go and )?(?:please )?(?:%do%)\b
  I can't do that offline: no tools, no language model. What is the occasion? | That is beyond me as I run
  now, and I won't pretend otherwise. What have you got so far?
remember 7 ^(?:do|can|will) you (?:still )?remember\b
  What stands in this conversation, and nothing beyond it. What about it? | I only see these lines.
kin-ill 7 %own%(%kin%)(?: [a-z]+)? (?:(?:just|recently|suddenly) )?(?:died|passed away|is dead|is dying|
        is (?:very |so |really )?(?:ill|sick)|is in (?:the )?hospital|has cancer|was killed|had an accident)\b
  I'm sorry about your {1}. Would you like to tell me more? | I'm sorry to read that about your {1}. How are
  you holding up? | That is hard, and I'm sorry. Who is with you?
kin-hurts 6 %own%(%kin%) ((?:(?:%often%) )?(?:hates?|hits?|ignores?|hurts?|left (?:me|us)|yells?|never)\b.*)
  What do you suppose is behind it, that your {1} {2}? | How do you bear it that your {1} {2}?
kin-verb 6 %own%(%kin%)(?: (?-i:[A-Z][a-z]+))? (?:(?:%often%) )*((?!(?:was|has|does|always|
        sometimes)\b)[a-z]+[^sui\W]s\b.*)
  How did your {1} come to {2:base}? | So your {1} {2}. Is that new? | What does it mean to you that your {1}
  {2}?
kin-did 6 %own%(%kin%)(?: (?-i:[A-Z][a-z]+))? ((?!(?:in|on|at|and|or|with|from|of|to|for|who)\b)[a-z]+\b.*)
  How is it for you that your {1} {2}? | What do you make of it that your {1} {2}?
bad-because 7 \bi (?:am|feel|was|felt|have been) (?:feeling )?(?:(?:%very%) )*(%bad%) because (.+)
  Is it all because {2}, or is there something else? | You feel {1} because {2}: what would help a little?
bad 6 \b(?:i (?:am|feel|was|felt|have been|have felt)|feeling) (?:feeling )?(?:(?:%very%) )*(%bad%)\b
  What made you feel {1}? | I'm sorry you feel {1}. When did it begin? | What would help, if only a little?
good 6 \b(?:i (?:am|feel)|feeling) (?:(?:%very%) )*(%good%)\b
  That is good to read. What made the difference? | Glad to hear it. And the best part? | Good! What next?
body 6 \bi (?:am|feel) (?:(?:%very%) )*(?:tired|exhausted|sleepy|worn out|ill|sick|unwell|hungry)\b|
        \bi (?:have|got) (?:an? )?(?:cold|flu|fever|headache|migraine|pain)\b|\bi can't sleep\b
  That wears one down. How long already? | What usually does you good then? | What can wait until tomorrow?
bored 6 \bi (?:am|feel) (?:(?:%very%) )*bored\b|^(?:this is )?boring$|^(?:nothing|not much|nothing much|nm)$
  What would you do if it were a holiday? | We could talk about {topic}, or about something of yours. Which?
cheer 6 \bi (?:just |finally )?(?:passed|won|got (?:the|a) job|got (?:promoted|married|engaged)|graduated|
        made it|did it|succeeded)\b|\b(?:my|today is my) birthday\b
  Congratulations! How will you celebrate? | That deserves a moment. Who knows already?
what-talk 6 ^what (?:shall|should|can|do) (?:we|i|you) (?:want to )?(?:talk|chat|speak|write) about|
        ^what (?:topics |subjects )?(?:are you interested|are your (?:interests|topics|hobbies))|
        ^what do you (?:like|enjoy|love)$
  We could talk about {topic}, or about {topic2}. Or tell me how your day went. | How about {topic}?
talk-about 6 ^(?:let us|let's|can we|shall we|i (?:want|would like) to) (?:talk|chat|speak) about (.+)
  Gladly. What about {1} is on your mind? | Yes, {1}. Where shall we begin?
should 5 ^(?:should|shall|can|could|may) (?:i|we) (.+)|^what (?:should|shall|can|must) (?:i|we) |
        \bi need (?:help|advice)|^any (?:advice|ideas)|^help me$
  What speaks for it, and what against? | If you {1}, what will be different in a month? | What would you
  advise a friend?
how-to 5 ^how (?:do|can|should|could|would) (?:i|we|you|one) (.+)
  I can't look up offline how to {1}. What have you tried so far? | Who do you know that could show you?
what-if 5 ^(?:what if|suppose|imagine|if) (.+)
  Then what would you do first? | What would be the best that could come of it?
loud 5 .
  [loud] I can hear you well without the capitals. What happened? | [loud] That sounds urgent. What is behind
  it? | [loud] Loud and clear. Now tell me the whole of it?
because 5 ^because (.+)
  Is that the only reason? | If it were not so, what then? | And behind that reason, is there another?
want-to 5 \bi (?:really |just |also |only )?(?:want|wanted|would like|would love|long|hope|need|
        try) to (?!me\b)(.+)
  What would it change for you to {1}? | What makes you want to {1}? | What is the first step?
want-you 5 \bi (?:want|need|wish) you\b
  What would be different if I did? | Offline I can't do more than talk. What do you hope for?
want 5 \bi (?:really |just |also |only )?(?!.*\byou\b)(?:want|wish for|need|would like) (.+)
  What would you do with {1}? | Suppose you had {1}: what then? | Since when have you wanted {1}?
dislike 5 \bi (?:really |just |also )?(?:hate|don't like|do not like|dislike|can't stand|am tired of|
        am sick of|don't want|do not want) (?:it when |that )?(.+)
  What is the worst of it? | What would you put in its place? | Was it ever easier for you?
like 5 \bi (?:really |just |also |do )?(?:like|love|enjoy|adore|am into|am fond of|prefer) (?!to\b)(.+)
  What do you like most about {1}? | What drew you to {1}? | What does {1} give you?
cannot 5 \bi (?:can't|could not|couldn't|am not able to|am unable to) (.+)
  What keeps you from it? | What would have to change so that you could {1}? | When could you last {1}?
must 5 \bi (?:(?:%often%) )?(?:have to|must|should|ought to|had to) (.+)
  What happens if you don't {1}? | Who says so, you or somebody else? | Would you {1} if nobody asked?
going-to 5 \bi (?:am (?:(?:%often%) )?going|will) (.+)
  Are you looking forward to it? | Who else is part of it, or is it just you?
home 5 \bi (?:am|come) from (.+)
  What should one know about {1}? | Does {1} still feel like home?
not-know 5 ^(?:i )?(?:don't|do not) know|^(?:maybe|perhaps|possibly|not sure|it depends|i am not sure)\b
  That's all right. What is your first guess? | What does it depend on? | Which way do you lean?
do-it 5 \bi (?:(?:%often%) )?((?:work|live|study|play|teach|write|paint|sing|cook|run|build|grow|make|use|
        learn|practi[sc]e|collect|draw|dance|swim|read|speak)\b.*)
  How did you come to {1}? | What do you like about it? | How much of your week goes into that?
doing 5 \bi (?:am|have been) (?:(?:%often%) )?((?!going|feeling|being)[a-z]{2,}ing\b.*)
  How long have you been {1}? | What got you started? | How is it going so far?
you-are 5 ^you (?:are|were) (?!right)(.+)
  What makes you think I am {1}? | Would it matter to you if I were {1}? | Perhaps I am. What gave it away?
think 4 \bi (?:(?:%often%) )?(?:think|believe|guess|suppose|feel|find|feel like) (?:that )?((?:you|it|he|she|
        they|we|i|the|my|this|that|there|people|everyone|nobody|most|life|an?)\b.+)
  What makes you think {1}? | Did you always think so? | And those who see it otherwise: what do they say?
am 4 \bi am (.+)
  How long have you been {1}? | What is it like, being {1}?
have 4 \bi (?:have|had|got|own) ((?:an?|the|my|some|many|two|three|four|no|so much|too much|a lot of) .+)
  Tell me more about that. What does it mean for your days? | What goes with having {1}?
did 4 \bi (?:just |finally |recently |also |once |have )?((?:never )?(?:[a-z]+ed|went|saw|met|made|had|got|
        bought|wrote|read|ate|found|lost|took|gave|began|ran|swam|came|told|said|heard|sold|spent|slept|left|
        been|seen|done)\b.*)
  What stayed with you from that? | How was that? | What led up to it?
kin-named 4 \b(?:my|his|her|our) (?:[a-z]+ )?(%kin%)\b(?!')
  Tell me more about your {1}. What is {1:she} like? | How do you and your {1} get on?
you-do 4 ^you (?!know\b|are\b|were\b)(.+)
  What gives you the idea that I {1}? | Say I {1}: what would follow? | How does it look from your side?
we 4 \bwe (.+)
  Who else was part of that? | Whose idea was it? | How was it for you?
he-she 4 \b(he|she|they) ((?!and\b|or\b|is (?:a|my)\b)[a-z']+\b.*)
  What may lie behind it, that {1} {2}? | How is that for you? | How do you see that yourself?
opinion 4 ^what (?:do|would) you (?:think|say|make) (?:of|about|if) (.+)|^what is your (.+)|^(?:do|
        don't) you (?:think|believe|agree|like|love|enjoy|want|prefer)\b
  My file doesn't say, and I won't make it up. What about you? | I hold no views of my own offline. What is
  yours? | You first: I'm better at asking than at judging.
ever 4 ^have you (?:ever )?(.+)|^did you (.+)
  No; I'm a program and have done nothing of the kind. Have you? | Never. Why do you ask?
could-you 4 ^(?:can|could|will|would) you (.+)|^why (?:don't|do not|can't|won't) you (.+)
  I doubt that I can {1}, offline as I am. What would it give you? | Not as I run now: I can only talk. What
  made you think of it? | If I could {1}, what would you do next?
why-you 4 ^why (?:are|do|did|would|will) you\b
  There is seldom more behind my lines than a pattern. What struck you about it?
what-is 3 ^(?:what|who) (?:is|are|was|were) (.+)|^what does (.+) mean|^tell (?:me|us) (?:more |something |
        a bit )?about (.+)|^(?:do|did) you know
  I can't look that up offline, and I won't make it up. What do you know about it already? | Nothing in my
  file tells me. | Offline I'm no encyclopaedia. What interests you about it?
why 3 ^why\b|\bwhy$
  What would you say is the reason? | I can't look reasons up offline. Which seems likeliest to you?
tell-more 3 ^(?:tell me more|go on|more|and then|continue)$
  I'd rather hear more from you. | There isn't more to me than this. What would you like to say?
named 3 .
  You touch on {named}, a subject of mine. What got you interested? | {named:top}: there I prick up my ears.
  Tell me more? | {about} So you have found one of my subjects.
my 3 \bmy ((?!name|own|way|mind|god|goodness|self|opinion)(?:[a-z]+'s )?[a-z]{3,})\b
  Tell me more about your {1}. | Your {1}: how did that come about? | What matters to you about your {1}?
work 3 \b(?:work|job|office|career|meeting|project|deadline|school|exams?|university)\b
  Which part of it would you keep if you could? | What takes most of your strength there?
music 3 \b(?:music|songs?|sing\w*|band|concert|guitar|piano|violin|cello|choir|album)\b
  What were you listening to last? | Which piece could you hear every day? | Do you play, or rather listen?
outdoors 3 \b(?:garden\w*|plants?|flowers?|trees?|forest|hik\w+|travel\w*|trip|holidays?|vacation|beach|
        mountains?|sea|weather|rain\w*|snow\w*|summer|winter)\b
  What do you notice there that others walk past? | What is it like at this time of the year?
it-is 3 ^(?:it|that|this) (?:is|was|seems|feels|sounds) (?!what|why|how|where|who|all$|it$)(.+)
  What makes it {1}? | {1:top}, you say. Compared with what?
ask 2 ^(?:what|which|where|when|who|whose|how|is|are|do|does|did|was|were|will|can|could|has|have|would)\b
  I don't know, and offline I can't look it up. What is your guess? | That I can't tell from here. What would
  you like the answer to be? | An honest "I don't know". What makes you ask? | I'd only be guessing. And you?
sure-all 2 \b(always|never|everyone|everybody|nobody|no one)\b
  {1:top}? Can you think of one time when it was otherwise? | {1:top} is a big word. When last?
yes 2 ^(?:yes|yeah|yep|yup|sure|of course|absolutely|definitely|exactly|indeed|you are right|right|true|ok|
        okay|k|alright|fine|agreed|wow|a?(?:ha|he){2,}h?|lol|cool|nice|great|awesome|interesting|good|perfect|
        i (?:do|am|did|have|will))(?: (?:please|thanks))?$
  Good. What else belongs to it? | Tell me a little more, then. | And what follows from that? | I see. Go on.
no 2 ^(?:no|nope|nah|not really|never|no way|not at all|i (?:don't|am not|did not|didn't|haven't|
        won't))(?: (?:thanks|thank you))?$
  All right. What would be nearer to it? | Why not, if I may ask? | Then how is it instead?
earlier 1 ^
  Earlier you mentioned {memory}. Has that to do with this? | You spoke of {memory} before. What more is there
  to say about it? | I still have {memory} in mind. How is that now? | Before, you said that {wish}. Is that
  still so?
short 0 ^((?!(?:i|you|he|she|it|we|they)\b)\w[\w' -]{2,40})$
  [brief] {1:raw}. And what goes with that? | [brief] What makes you say {1:quoted}? | [brief] Why {1:quoted}?
rest 0 ^
  What makes that matter to you? | Tell me a little more about that. | I follow you only in part; put it
  another way? | And how do you feel about it? | Go on, I'm reading. | What would you like to come of it? |
  What is the heart of it? Or shall we turn to {topic}? | Who else sees it so? | What would be a good outcome
  there? | Can you give me an example? | How long has that been on your mind? | I don't have a pattern for
  that one. What is the main thing? | What surprised you about it?
"""

# Ranks of rules: before everything; before a file's examples; may be repeated soon; substantial.
CRISIS, FRANK, SOCIAL, STRONG = 10, 9, 7, 6


@dataclass(frozen=True, slots=True)
class Rule:
    """Answers to sentences that match a pattern."""

    name: str
    rank: int
    pattern: re.Pattern[str]
    answers: tuple[str, ...]


def parse_rules(script: str) -> tuple[Rule, ...]:
    """Parse rules in the format of the module's docstring; highest rank first, else in their order."""
    rules = []
    for block in re.split(r"\n(?=\S)", script.strip("\n")):
        header, _, body = re.sub(r"\n {8}", "", block).partition("\n")
        name, rank, pattern = header.split(" ", 2)
        pattern = re.sub(r"%(\w+)%", lambda word: WORD_GROUPS[word[1]], pattern)
        answers = tuple(" ".join(body.split()).split(" | "))
        rules.append(Rule(name, int(rank), re.compile(pattern, re.IGNORECASE), answers))
    return tuple(sorted(rules, key=lambda rule: -rule.rank))


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _pairs(pairs: str) -> Mapping[str, str]:
    return MappingProxyType(dict(pair.split("=") for pair in pairs.split("; ")))


RULES = parse_rules(SCRIPT)
CLOSING_RULES = _words("bye never-mind quiet")  # rules: as the last sentence they end the open questions
RULES_WITHOUT_EXAMPLES = _words("request live machine link code sum")  # an example would be untrue here

REFLECTIONS = _pairs(
    "i=you; me=you; my=your; mine=yours; myself=yourself; we=you; us=you; our=your; ours=yours; am=are; "
    "ourselves=yourselves; your=my; yours=mine; yourself=myself; yourselves=ourselves"
)
YOU_IS_SUBJECT_AFTER = _words(
    "because that if when while but so what why how where who do did does can could will would should may "
    "might are were am was think thinks know hope wish believe than whether since until till as way "
    "everything all and time thing whatever though or have had has say said sure"
)
YOU_IS_SUBJECT_BEFORE = _words(
    "are were have had do did don't didn't can can't could will won't would should must may might never "
    "always said told left went made know think want need like love hate"
)
LONG_FORMS = _pairs(
    "i=I; i'm=I am; im=I am; i've=I have; ive=I have; i'll=I will; i'd=I would; you're=you are; "
    "youre=you are; you've=you have; you'll=you will; you'd=you would; we're=we are; we've=we have; "
    "we'll=we will; they're=they are; theyre=they are; they've=they have; they'll=they will; he's=he is; "
    "she's=she is; it's=it is; that's=that is; thats=that is; there's=there is; what's=what is; "
    "whats=what is; who's=who is; whos=who is; where's=where is; how's=how is; hows=how is; dont=don't; "
    "cant=can't; cannot=can't; wont=won't; didnt=didn't; doesnt=doesn't; isnt=isn't; wasnt=wasn't; "
    "couldnt=couldn't; wouldnt=wouldn't; havent=haven't; u=you; ur=your; r=are; pls=please; plz=please; "
    "gonna=going to; wanna=want to; gotta=have to; dunno=don't know"
)
BASE_FORMS = _pairs("has=have; is=be; does=do; goes=go; was=be")
OPERATOR_SYMBOLS = _pairs("divided by=/; multiplied by=*; plus=+; minus=-; times=*; over=/; x=*; ×=*; ÷=/")
FEMININE_WORDS = _words("sister mother mom mum wife daughter aunt niece grandmother grandma gran girlfriend")
MASCULINE_WORDS = _words("brother father dad husband son uncle nephew grandfather grandpa boyfriend")
NOT_NAMES = _words("not back here home fine good happy sad ok okay done later when if a the maybe so german")
STOP_WORDS = _words(
    "the a an and or of to in on for is are was were be it i you your my me we do does did what who how why "
    "when where that this with about at from as not have has can could will tell know think like am"
)

POST_TEMPLATES = (
    "Question of the day: what first drew you to {topic}?",
    "If you had to explain {topic} to a child in one sentence, which would it be?",
    "What does hardly anybody ask about {topic}?",
    "{topic:top}: overrated, underrated, or just right?",
    "What changed your mind lately?",
    "What have you learned this week that you wish you had known before?",
    "Name something plain that deserves more praise.",
)
