//! The forms of secrets, and the words that announce one.

/// Replaces a secret.
pub const MASK: &str = "[secret masked]";

/// Key prefixes, each with the minimum bytes after it.
const PREFIXES: [(&str, usize); 38] = [
    ("sk-", 16),
    ("sk_live_", 12),
    ("sk_test_", 12),
    ("rk_live_", 12),
    ("rk_test_", 12),
    ("whsec_", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("gldt-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxa-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("xoxe-", 10),
    ("xapp-", 10),
    ("AIza", 30),
    ("ya29.", 20),
    ("GOCSPX-", 20),
    ("npm_", 30),
    ("pypi-", 40),
    ("hf_", 28),
    ("gsk_", 24),
    ("xai-", 24),
    ("SG.", 30),
    ("dop_v1_", 40),
    ("shpat_", 24),
    ("glsa_", 24),
    ("lin_api_", 24),
    ("ATATT3x", 24),
    ("AGE-SECRET-KEY-1", 40),
];

/// Last two bytes of the ASCII names below.
const ENDINGS: [&[u8; 2]; 12] = [b"rd", b"wd", b"se", b"rt", b"ha", b"et", b"en", b"ey", b"al", b"ls", b"ss", b"pw"];

/// Bytes of the shortest key, prefix included.
const KEY_BYTES_MIN: usize = 15;

/// How strongly a name announces a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    /// A password may be any word.
    Password,
    /// A token or key is not a dictionary word, because code contains `token: Ident`.
    Key,
}

/// Endings of password names, in lower case and without joining marks.
const PASSWORDS: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "passwort",
    "kennwort",
    "contraseña",
    "motdepasse",
    "senha",
    "пароль",
    "密码",
    "密碼",
    "口令",
    "パスワード",
    "비밀번호",
    "pwd",
];
/// Endings of key and token names.
const KEYS: [&str; 11] = [
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "credential",
    "credentials",
    "authkey",
];
/// Names that announce a password only as a whole word or after a mark (`DB_PASS`).
const PASSWORDS_WHOLE: [&str; 2] = ["pass", "pw"];

/// Values that are not secrets: types, placeholders, beginnings of sentences.
const NO_SECRETS: &str = "\
    string str text bool none null nil true false undefined unknown required optional secret password passwd hidden \
    masked redacted empty changed yes no not must should shall is are was the a an your our its my this that at be and \
    or of for min max can will may has have if in on to with char varchar number integer int bytes any object option \
    value input hash hashed default missing invalid wrong incorrect expired rejected self let const static new field";

/// Returns the bytes of the key at the start of a text; `None` if there is none.
pub(super) fn known(token: &str) -> Option<usize> {
    if token.len() < KEY_BYTES_MIN {
        return None;
    }
    if token.starts_with("eyJ") {
        return is_jwt(token).then_some(token.len());
    }
    let (prefix, least) = PREFIXES.into_iter().find(|(prefix, _)| token.starts_with(prefix))?;
    let is_key = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && prefix.ends_with('.'))
    };
    let behind = &token[prefix.len()..];
    let bytes = behind.bytes().position(|byte| !is_key(byte)).unwrap_or(behind.len());
    let key = &behind[..bytes];
    let is_secret = match prefix {
        "AKIA" | "ASIA" => {
            key.len() == least && key.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        }
        // Hyphenated words may start like this too, but a key has a long piece with digits.
        _ => {
            key.len() >= least
                && key
                    .split(['-', '_', '.'])
                    .any(|piece| piece.len() >= 8 && piece.bytes().any(|byte| byte.is_ascii_digit()))
        }
    };
    is_secret.then_some(prefix.len() + bytes)
}

/// Recognises a JWT: three base64 pieces, the first two of them JSON.
fn is_jwt(token: &str) -> bool {
    let mut pieces = token.split('.');
    let long = |piece: Option<&str>, least| piece.is_some_and(|piece| piece.len() >= least);
    long(pieces.next(), 10) && long(pieces.next(), 10) && long(pieces.next(), 4)
}

/// Returns true if the word announces a token.
pub(super) fn is_bearer(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer")
}

/// Returns how strongly a name announces a secret; "API key" is one name.
pub(super) fn strength(name: &str) -> Option<Strength> {
    // Most words end differently and need no copy.
    let bytes = name.as_bytes();
    let last_two = [bytes.get(bytes.len().wrapping_sub(2))?, bytes.last()?].map(u8::to_ascii_lowercase);
    if last_two.is_ascii() && !ENDINGS.contains(&&last_two) {
        return None;
    }
    let plain: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect();
    let whole = name.rsplit(['_', '-']).next().unwrap_or(name);
    if PASSWORDS.iter().any(|ending| plain.ends_with(ending))
        || PASSWORDS_WHOLE.iter().any(|ending| whole.eq_ignore_ascii_case(ending))
    {
        return Some(Strength::Password);
    }
    KEYS.iter().any(|ending| plain.ends_with(ending)).then_some(Strength::Key)
}

/// Returns true for a path of a programming language: `TokenKind::Identifier1`.
fn is_path(value: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '<' | '>');
    value
        .split_once("::")
        .is_some_and(|(first, rest)| !first.is_empty() && first.chars().all(in_name) && rest.starts_with(in_name))
}

/// Returns true if the value assigned to such a name is the secret itself, and not a type, a placeholder or code that
/// fetches it.
pub(super) fn is_secret(value: &str, strength: Strength, is_quoted: bool) -> bool {
    let lower = value.to_ascii_lowercase();
    let is_code = value.contains(['(', '{', '$', '[']) && !is_quoted
        || value.starts_with(['$', '{', '<', '%', '&', '*', '(', '/']);
    if is_code || MASK.starts_with(value) || value.starts_with(MASK) || is_path(value) {
        return false;
    }
    if NO_SECRETS.split(' ').any(|word| word == lower)
        || value.chars().all(|c| matches!(c, '*' | 'x' | 'X' | '.' | '•' | '-' | '_'))
    {
        return false;
    }
    let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
    match strength {
        // `userPassword` and `config.password` only fetch it.
        Strength::Password => value.len() >= 3 && (is_quoted || has_digit || !lower.contains("pass")),
        Strength::Key => {
            let is_number =
                value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'_' | b'-'));
            let is_joined = value.contains(' ') || value.contains("://");
            let has_letter = value.bytes().any(|byte| byte.is_ascii_alphabetic());
            value.len() >= 8 && !is_number && !is_joined && has_letter && (has_digit || is_quoted && value.len() >= 16)
        }
    }
}
