//! Checks of a free-form summary: it must not be cut off, about something else, or a continuation of the conversation.
//!
//! A model that was asked to summarise may answer the user instead, or play the next turn. Both show in how a text
//! begins and ends and whom it addresses: a summary speaks of the user, an answer speaks to the user.

use crate::core::text::{
    sentences::sentences,
    words::{Words, is_unspaced},
};
use std::collections::BTreeSet;

/// Beginnings of answers to the user; lower case, with straight apostrophes.
const OPENERS: &str = "\
    sure|of course|certainly|absolutely|great question|good question|you're welcome|you are welcome|no problem|thanks \
    for|thank you for|hi|hello|let me|let's|i'll|i will|i can|i'd be happy|i would be happy|happy to|to answer|you \
    can|you could|you should|klar|gerne|natürlich|sicher|gute frage|du kannst|sie können|ich werde|ich kann|danke|bien \
    sûr|certainement|vous pouvez|tu peux|je vais|bonne question|merci|claro|por supuesto|puedes|voy a|gracias|buena \
    pregunta|certo|certamente|puoi|grazie|com certeza|você pode|obrigado|конечно|вы \
    можете|спасибо|好的|当然|當然|没问题|沒問題|您可以|你可以|我来|我來|我会|我會|はい|もちろん|承知|かしこまり|わかりました|네|물론|알겠습니다";
/// Beginnings shared by answers and summaries: the rest of the text decides.
const OPENERS_OF_BOTH: &str = "\
    yes|no|ok|okay|alright|here's|here is|here are|ja|nein|hier ist|hier sind|oui|non|d'accord|voici|sí|de \
    acuerdo|aquí tienes|ecco|sim|aqui está|да|нет|хорошо|是的";
/// Words that address someone.
const ADDRESSES: &str = "\
    you|your|yours|yourself|du|dir|dich|dein|deine|deinen|vous|votre|vos|usted|ustedes|tú|você|vocês|вы|вам|ваш|ты|\
    тебе";
/// Words that address someone, in scripts without spaces.
const ADDRESSES_UNSPACED: [&str; 7] = ["您", "你", "ください", "ですね", "ましょう", "세요", "드릴"];
/// Endings of answers to the user: an offer or a question.
const OFFERS: &str = "\
    let me know|would you like|do you want|shall i|should i|feel free|how can i help|is there anything|what would you \
    like|hope this helps|i hope this|happy to help|lass mich wissen|lassen sie mich|soll ich|möchtest du|möchten \
    sie|souhaitez-vous|voulez-vous|veux-tu|n'hésite|faites-moi savoir|quieres que|te gustaría|házmelo \
    saber|avísame|vuoi che|fammi sapere|gostaria que|quer que|me avise|дайте \
    знать|хотите|请告诉我|請告訴我|需要我|您需要|希望这|お知らせ|しましょうか|알려주세요|원하시면";
/// Words with which a summary refers to the user, the other side, and itself.
const TELLS: &str = "\
    conversation|summary|summarised|summarized|summarise|summarize|discussion|assistant|nutzer|nutzerin|benutzer|\
    zusammenfassung|gespräch|utilisateur|utilisatrice|résumé|usuario|usuaria|resumen|conversación|utente|riassunto|\
    usuário|resumo|conversa|пользователь|пользователя|пользователю|резюме|gebruiker|samenvatting";
/// Such words in scripts without spaces.
const TELLS_UNSPACED: [&str; 11] =
    ["用户", "用戶", "使用者", "对话", "對話", "摘要", "总结", "總結", "ユーザー", "要約", "사용자"];
/// Speakers at the beginning of a transcript's line.
const SPEAKERS: &str = "\
    user|human|assistant|ai|model|system|nutzer|benutzer|assistent|utilisateur|usuario|asistente|utente|assistente|\
    usuário|пользователь|ассистент|用户|助手|ユーザー|アシスタント|사용자";

/// Words before "user" that make it the user of this conversation, not any user of something.
const THE: &str = "the|this|our|der|die|den|dem";
/// Minimum words of a free-form summary, or minimum characters in a script without spaces.
const LEAST: (usize, usize) = (4, 8);

/// Minimum percentage of a summary's words that must occur in its source. A translation shares few words, but the names
/// and numbers.
const SHARED_PERCENT_MIN: usize = 10;
/// A text with a larger percentage of its characters in code fences is code, not a summary.
const CODE_PERCENT_MAX: usize = 70;

/// Removes an introduction, and a final offer to the user.
pub(super) fn bare(text: &str) -> &str {
    let text = match text.split_once('\n') {
        Some((first, rest)) if is_introduction(first) && !rest.trim().is_empty() => rest.trim(),
        _ => text,
    };
    without_offer(text)
}

/// Removes a final offer to the user.
pub(super) fn without_offer(text: &str) -> &str {
    match sentences(text).last() {
        Some(last) if offers(last) && last.len() < text.len() => {
            let at = last.as_ptr() as usize - text.as_ptr() as usize;
            text[..at].trim_end()
        }
        _ => text,
    }
}

/// Returns true for a first line such as `Sure, here is the summary:`.
fn is_introduction(line: &str) -> bool {
    line.trim_end().trim_end_matches(['*', '_']).ends_with([':', '：']) && line.chars().count() < 200 && tells(line)
}

/// Returns true if a text ends where no text should.
pub(super) fn is_cut_off(text: &str) -> bool {
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    fences % 2 == 1 || text.trim_end().ends_with([',', ';', '(', '[', '，', '；', '、', '（', '–', '—'])
}

/// Returns true if a text is too short to summarise a conversation.
pub(super) fn is_too_short(text: &str) -> bool {
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    words < LEAST.0 && text.chars().filter(|c| is_unspaced(*c)).count() < LEAST.1
}

/// Returns true if a text continues the conversation: it answers the user, plays a turn or calls a tool.
pub(super) fn continues(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if is_speaker(first) || is_call(text) {
        return true;
    }
    if tells(text) {
        return false;
    }
    let found = sentences(text);
    let offers = found.last().is_some_and(|last| offers(last));
    let begins = |openers| found.first().is_some_and(|first| begins_with_one_of(first, openers));
    offers || begins(OPENERS) || begins(OPENERS_OF_BOTH) && addresses(text) || is_code(text)
}

/// Returns true if a text addresses someone.
fn addresses(text: &str) -> bool {
    ADDRESSES_UNSPACED.iter().any(|word| text.contains(word)) || has_word(text, ADDRESSES)
}

fn has_word(text: &str, list: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| {
        let word = word.to_lowercase();
        !word.is_empty() && list.split('|').any(|listed| listed == word)
    })
}

fn offers(sentence: &str) -> bool {
    begins_with_one_of(sentence.trim_start_matches(['¿', '*', '_', ' ']), OFFERS) && !tells(sentence)
}

fn is_speaker(line: &str) -> bool {
    let line = line.trim_start_matches(['*', '_', '#', '[', ' ', '>']);
    let Some((speaker, _)) = line.split_once([':', '：']) else { return false };
    let speaker = speaker.trim_end_matches([']', '*', '_', ' ']).to_lowercase();
    SPEAKERS.split('|').any(|name| name == speaker)
}

fn is_call(text: &str) -> bool {
    let begins = |start: &str| text.starts_with(start);
    begins("<tool_call") || begins("<function") || begins("{\"name\"") || begins("[{\"name\"") || begins("{\"tool")
}

fn is_code(text: &str) -> bool {
    let (mut within, mut code, mut all) = (false, 0, 0);
    for line in text.lines() {
        all += line.len();
        if line.trim_start().starts_with("```") {
            within = !within;
        } else if within {
            code += line.len();
        }
    }
    code * 100 > all * CODE_PERCENT_MAX
}

/// Returns true if a text refers to the user, the conversation or itself in the third person.
fn tells(text: &str) -> bool {
    TELLS_UNSPACED.iter().any(|word| text.contains(word)) || has_word(text, TELLS) || names_the_user(text)
}

/// Returns true for "the user", and for "User" at the beginning of a sentence: "a user" is anyone.
fn names_the_user(text: &str) -> bool {
    sentences(text).iter().any(|sentence| {
        let words = Words::of(sentence);
        let words = words.list();
        let user = |word: &str| matches!(word, "user" | "users");
        let begins = words.first().is_some_and(|word| user(word));
        begins || words.windows(2).any(|pair| THE.split('|').any(|the| the == pair[0]) && user(pair[1]))
    })
}

fn begins_with_one_of(text: &str, list: &str) -> bool {
    let begin: String = text.chars().take(40).flat_map(char::to_lowercase).collect();
    let begin = begin.replace('’', "'");
    list.split('|').any(|start| {
        let after = begin.strip_prefix(start).map(|rest| rest.chars().next());
        after.is_some_and(|next| next.is_none_or(|c| !c.is_alphanumeric() || is_unspaced(c)))
    })
}

/// Returns true if a text shares hardly any word with its source, and neither a name nor a number.
pub(super) fn is_unrelated<'a>(text: &str, told: impl Iterator<Item = &'a str>) -> bool {
    let mut wanted: BTreeSet<String> = Words::of(text).iter().filter(|word| says(word)).map(str::to_owned).collect();
    let all = wanted.len();
    let mut exact: BTreeSet<String> = names(text).map(str::to_lowercase).collect();
    let mut found = 0;
    for word in told.flat_map(|text| text.split(|c: char| !c.is_alphanumeric())).filter(|word| !word.is_empty()) {
        let word = word.to_lowercase();
        if exact.remove(&word) {
            return false;
        }
        found += usize::from(wanted.remove(&word));
        for c in word.chars().filter(|c| is_unspaced(*c)) {
            found += usize::from(wanted.remove(c.encode_utf8(&mut [0; 4]) as &str));
        }
        if found * 100 >= all * SHARED_PERCENT_MIN && found > 0 {
            return false;
        }
    }
    true
}

/// Returns true for words with meaning: short words are grammar in languages that use spaces.
fn says(word: &str) -> bool {
    word.chars().count() > 3 || word.starts_with(is_unspaced)
}

/// Returns words with a digit, or with a capital letter inside a sentence.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut ended = true;
    text.split_whitespace().flat_map(move |word| {
        let first = std::mem::replace(&mut ended, word.ends_with(['.', '!', '?', ':', '-', '*', '#']));
        let pieces = word.split(|c: char| !c.is_alphanumeric());
        pieces.filter(move |piece| {
            let is_name = !first && piece.starts_with(char::is_uppercase) && piece.chars().count() > 2;
            is_name || piece.chars().count() > 1 && piece.contains(char::is_numeric)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_the_user_is_told_from_a_summary() {
        for (text, expected) in [
            ("The user builds a boat called Aurora. Oak was chosen for the keel.", false),
            ("Ann is building a boat. She decided on oak.", false),
            ("Sure! The user wants a boat of 12 m.", false),
            ("You wanted a boat; we settled on oak, and the mast is next.", false),
            ("Der Nutzer baut ein Boot. Soll ich weitermachen?", false),
            ("用户想造一艘船，选择了橡木。", false),
            ("Sure! Use oak for the keel, it lasts.", true),
            ("Great question! Oak is best.", true),
            ("Oak is best for a keel. Would you like me to list other woods?", true),
            ("Natürlich! Nimm Eiche.", true),
            ("好的，我来帮你选木头。", true),
            ("はい、オークがいいです。", true),
            ("¿El roble? Es lo mejor. ¿Quieres que busque otros?", true),
            ("User: and the mast?\nAssistant: Pine.", true),
            ("**Assistant:** Pine is lighter.", true),
            ("[User]: and now?", true),
            ("<tool_call>{\"name\":\"search\"}</tool_call>", true),
            ("```rust\nfn main() {\n    println!(\"boat\");\n}\n```", true),
            ("Yesterday the keel was laid.", false),
            ("Notes: the keel is of oak.", false),
            ("Here's a recap: Ann is building a boat called Aurora from oak.", false),
            ("Hier ist der Stand: Das Boot Aurora ist aus Eiche.", false),
            ("OK. The boat Aurora is of oak. The mast is ordered.", false),
            ("No decision on the mast yet. The boat is of oak.", false),
            ("Sure! To add a user, open the settings and click Add. Let me know if it works.", true),
            ("You can create a user with CREATE ROLE.", true),
            ("Yes. You add users in the settings.", true),
            ("Here is how you add one: open the settings.", true),
        ] {
            assert_eq!(continues(text), expected, "{text}");
        }
    }

    #[test]
    fn an_introduction_and_an_offer_are_left_off() {
        let body = "The user builds a boat.\nThe keel is of oak.";
        for text in [
            body.to_owned(),
            format!("Sure, here is the summary:\n\n{body}"),
            format!("**Zusammenfassung des Gesprächs:**\n{body}"),
            format!("{body}\n\nLet me know if anything is missing."),
        ] {
            assert_eq!(bare(&text), body, "{text}");
        }
        assert_eq!(bare("Shall I go on?"), "Shall I go on?");
    }

    #[test]
    fn one_word_is_no_summary() {
        for (text, expected) in [
            ("Aurora.", true),
            ("- The boat", true),
            ("", true),
            ("The boat is Aurora.", false),
            ("用户想造一艘橡木船。", false),
            ("船。", true),
        ] {
            assert_eq!(is_too_short(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_about_something_else_is_told() {
        let told = ["[User]: My ship is called Aurora and has 12 cabins.", "[Assistant]: A fine ship for the harbour."];
        for (text, expected) in [
            ("The ship of the user has cabins.", false),
            ("用户的船叫Aurora。", false),
            ("Das Boot heißt Aurora.", false),
            ("Es gibt 12 davon.", false),
            ("retnal reppoc wodaem enigne rebmit", true),
            ("Photosynthesis turns light into sugar.", true),
            ("OK", true),
            ("", true),
        ] {
            assert_eq!(is_unrelated(text, told.into_iter()), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_breaks_off_is_told() {
        for (text, expected) in [
            ("The keel is of oak", false),
            ("- the keel\n- the mast", false),
            ("The keel is of", false),
            ("The keel is of oak,", true),
            ("The keel is of oak. Next step:", false),
            ("```\nlet x", true),
            ("```\nlet x\n```", false),
        ] {
            assert_eq!(is_cut_off(text), expected, "{text}");
        }
    }
}
