"""The words with which people ask for an action, in several languages; code looks for them in the asker's message.

Each is a phrase that asks for the action and hardly stands in a message about anything else; `*` stands for up to
four words.
"""

from typing import Final


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


FOLLOW: Final = _phrases(
    """
    follow along, follow everything, join in, answer everything, reply to everything, answer every message,
    reply to every message, answer all messages, respond to everything, respond to every message,
    participate here, chime in, answer without being asked, mach mit, rede mit, nimm teil, beteilige dich,
    antworte auf alles, antworte hier auf alles, auf jede nachricht, participez, suis cette, suis ce salon,
    réponds à tout, à tous les messages, sigue esta, sigue este, síguenos, únete, responde a todo,
    todos los mensajes, segui questa, acompanhe, участвуй, отвечай на всё, на каждое сообщение, 参加して,
    全部に答えて, すべてのメッセージ, フォローして, 加入讨论, 回复每条, 참여해, mach * mit, mische dich ein,
    comment on everything, comment on anything, take part in, follow this room, follow this channel,
    follow this chat, follow this conversation, follow this thread, follow this group, follow the room,
    follow the channel, follow the chat, follow the conversation, follow the thread, follow the group,
    follow us here, take part here, take part in everything, take part in this, take part in the,
    be part of this, participe à, participe aqui, participa en, partecipa a, segui la stanza, segui la chat,
    listen in here, 关注这个, 参与讨论, 参与这里, folge diesem, folge dem raum, folge dem chat, следи за этим
    """
)
UNFOLLOW: Final = _phrases(
    """
    unfollow, stop following, that is enough, that's enough, step back, stop answering,
    no longer answer everything, stop replying to everything, only when asked, only when called,
    only when we ask, stop taking part, stop joining in, not every message, leave us to it, das reicht,
    nicht mehr auf alles, halt dich raus, nur wenn man dich ruft, nur auf zuruf, ça suffit, ne suis plus,
    plus à tout, seulement si, basta, ya basta, deja de seguir, ya no respondas, solo cuando,
    smetti di seguire, solo se, pare de seguir, хватит, не отвечай на всё, только когда, もういい,
    フォローをやめて, 够了, 取消关注, 그만, only * when asked, only * when called, only * if asked,
    don't have to answer, don't have to comment, do not have to answer, need not answer, musst nicht auf alles,
    nur noch wenn, halte dich zurück, zieh dich zurück, keep out
    """
)
MUTE: Final = _phrases(
    """
    be quiet, keep quiet, stay quiet, be silent, stay silent, silence please, shut up, hush, quiet in here,
    quiet please, quiet for now, stop talking, stop answering, stop writing, stop responding, stop replying,
    stop posting, say nothing, do not answer, don't answer, don't reply, not speak, don't speak,
    only speak when, only when i call, only if i call, sei still, sei ruhig, sei leise, schweig, halt den mund,
    ruhe bitte, antworte nicht, schreib nichts mehr, tais-toi, taisez-vous, ne réponds plus, ne parle plus,
    cállate, calla, silencio aquí, silénciate, silencia, no respondas, no hables, zitta, zitto, taci,
    fai silenzio, cala-te, fique quieta, fique em silêncio, sessiz ol, помолчи, молчи, замолчи, не отвечай,
    тихо, 静かにして, 黙って, ミュート, 话少, 安静, 闭嘴, 别说话, 静音, 조용히, 음소거, stay * quiet,
    be * silent, no more messages, sei * still, sei * ruhig, sei * leise, antworte * nur noch,
    keine nachrichten mehr, plus de messages, no más mensajes, go silent, go quiet, shush, halt * den mund,
    keep it down, mute yourself, mute this, mute the, mute here, mute in, mute now, mute until, mute for,
    please mute, go mute, stay mute, stumm schalten, schalte * stumm, stell * stumm, bleib * stumm,
    reste muette, reste muet, sois silencieuse, sois silencieux
    """
)
UNMUTE: Final = _phrases(
    """
    unmute, speak again, talk again, talk to me again, answer again, you may talk, you may speak, you can talk,
    you can speak, you can answer, you may answer, start talking, reply again, respond again, write again,
    speak up, come back, break the silence, no longer quiet, rede wieder, sprich wieder, antworte wieder,
    du darfst wieder, schreib wieder, nicht mehr stumm, parle à nouveau, reparle, tu peux parler,
    réponds à nouveau, habla de nuevo, vuelve a hablar, puedes hablar, responde de nuevo, parla di nuovo,
    puoi parlare, torna a parlare, pode falar, fale de novo, говори снова, можешь говорить, отвечай снова,
    また話して, 話していい, ミュート解除, 可以说话, 取消静音, 말해도 돼, rede * wieder, sprich * wieder,
    antworte * wieder, feel free to talk, feel free to speak, feel free to answer, back to talking
    """
)
SEND: Final = _phrases(
    """
    send, tell, write, message, dm, post, announce, inform, notify, remind, pass on, forward, greet, text,
    ping, thank, warn, invite, sag, sage, schreib, schreibe, schick, schicke, sende, richte, teile, teil, frag,
    frage, melde, informiere, grüß, grüße, erinnere, dis, dites, écris, envoie, préviens, annonce, demande,
    salue, rappelle, di, dile, diles, dígale, escribe, escríbele, envía, envíale, manda, mándale, avisa,
    avísale, anuncia, pregunta, pregúntale, saluda, recuerda, recuérdale, dì, scrivi, invia, avverti, chiedi,
    saluta, diga, escreve, escreva, envie, avise, pergunte, скажи, напиши, передай, отправь, сообщи, спроси,
    напомни, 伝えて, 送って, 書いて, 言って, 知らせて, 告诉, 发给, 发消息, 通知, 转告, 전해, 보내, heads-up,
    let * know, should know, give * heads-up, give * my, say to, say in, say hello, say hi, ask * whether,
    ask * if, ask * to, ask * about, ask * when, ask * for, share with, share in, wish * happy, wish * a,
    gib * bescheid, gib * weiter
    """
)
CONTACT: Final = _phrases(
    """
    mail, email, e-mail, address, phone, mobile, number, call me, website, homepage, site, blog, page, handle,
    username, telegram, discord, signal, mastodon, time zone, timezone, zone, reach, contact, messages,
    write to me, forget, remember, adresse, telefon, handy, nummer, webseite, zeitzone, erreichen, erreichst,
    kontakt, vergiss, merk, nachrichten, courriel, téléphone, numéro, fuseau, joindre, oublie, correo,
    teléfono, número, móvil, página, sitio, huso, contactar, contacto, olvida, indirizzo, telefono, numero,
    sito, fuso, telefone, endereço, почта, телефон, номер, сайт, адрес, メール, 電話, サイト, 連絡, 邮箱, 电话,
    网站, 时区, 联系, 이메일, 전화
    """
)
ABORT: Final = _phrases(
    """
    abort, cancel, drop it, never mind, nevermind, forget it, leave it, abbrechen, lass es, vergiss es, annule,
    laisse tomber, cancela, olvídalo, annulla, lascia stare, cancele, отмена, отмени, キャンセル, やめて,
    取消, 算了, 취소
    """
)
ORDINALS: Final = (
    _phrases("first, erste, ersten, erstes, premier, première, primero, primera, первый, 最初, 第一"),
    _phrases("second, zweite, zweiten, zweites, deuxième, segundo, segunda, второй, 二番目, 第二"),
    _phrases("third, dritte, dritten, drittes, troisième, tercero, tercera, третий, 三番目, 第三"),
)
TAKE_ROLE: Final = _phrases(  # they stand for the role that a person has
    """
    demote, degrade, rights, permissions, privileges, powers, role, rank, status, rechte, rolle, befugnisse, droits,
    rôle, derechos, permisos, rol, diritti, permessi, ruolo, direitos, permissões, papel, права, роль, понизь,
    разжалуй, 権限, 权限, 권한
    """
)
GIVE_ROLE: Final = _phrases(
    "promote, befördere, promouvoir, promeus, asciende, promuovi, promova, повысь, 昇格, 提升, 승진"
)
FORGET: Final = _phrases(
    """
    forget, delete, remove, erase, drop, no longer, not valid, vergiss, lösch, lösche, entferne, nicht mehr, oublie,
    efface, supprime, olvida, borra, elimina, dimentica, cancella, esqueça, apague, забудь, удали, 忘れて, 消して,
    忘掉, 删除, 잊어, 지워
    """
)
