//! Tests what is masked and what must not be. The keys here are invented and open nothing.

use super::*;
use proptest::prelude::*;

/// Texts with `{}` for the secret, which must be masked; the text around it must stay.
const MASKED: &[(&str, &str)] = &[
    ("use {} please", "sk-abcdefghij1234567890"),
    ("use {}.", "sk-proj-Ab12_cd-Ef34gh56ij78kl90"),
    ("({})", "sk-ant-api03-0a1b2c3d4e5f6g7h8i9j"),
    ("{}\n", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
    ("x={}", "github_pat_11ABCDEFG0123456789_abcdefghij"),
    ("{}", "glpat-abcdefgh12345678"),
    ("id {},", "AKIAIOSFODNN7EXAMPLE"),
    ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("{}", "xoxb-123456789012-abcdefghijkl"),
    ("key={}&x=1", "AIzaSyA1234567890abcdefghijklmnopqrstuv"),
    ("{}", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"),
    ("Authorization: Bearer {}", "abc123def456ghi789"),
    ("-H 'authorization: bearer {}'", "0a1b2c3d4e5f6a7b8c9d"),
    ("a {} b", "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"),
    ("{}!", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\naC1rZXk"),
    ("postgres://ann:{}@db.example.org:5432/app", "s3cr&t!pw"),
    ("redis://:{}@cache:6379", "hunter2"),
    ("https://bob:{}@example.org/x", "p@ss"),
    ("password={}", "hunter2"),
    ("password: {}\n", "swordfish"),
    ("DB_PASS='{}'", "correct horse battery"),
    ("\"password\": \"{}\",", "abc"),
    ("{\\\"password\\\": \\\"{}\\\"}", "hunter2"),
    ("export PGPASSWORD={}", "tulip"),
    ("mysql --password {} -u root", "hunter2"),
    ("X-Api-Key: {}", "9f8e7d6c5b4a39281706"),
    ("api_key: \"{}\"", "aaaabbbbccccdddd"),
    ("?token={}&page=2", "3f2a9c1d7e"),
    ("client_secret={}", "Zx9_kL2mN8pQ"),
    ("Passwort: {}", "geheim1"),
    ("密码：{}", "hunter2"),
    ("My API key is {} so", "kJ8sd7Fh2Lq9Zx3Wv5Bn1"),
    ("the token: {}", "kJ8sd7Fh2Lq9Zx3Wv5Bn1"),
    ("KENN_WORT={}", "hunter2"),
    ("contra-SEÑA: {}", "hunter2"),
    ("密_码={}", "hunter2"),
    ("ПАроль: {}", "hunter2"),
    ("p_wd={}", "hunter2"),
    ("api_\u{212a}ey=\"{}\"", "aaaabbbbccccdddd"),
    ("aws_secret_access_key = {}.::=", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("api_key={}.", "q83vEjRWeJCrze8SNFZ4kA=="),
    ("first line\nmy pass-word = {}\nlast line", "hunter2"),
];

#[test]
fn secrets_are_masked_and_the_text_around_them_stays() {
    for (text, secret) in MASKED {
        let given = text.replace("{}", secret);
        assert_eq!(mask_secrets(&given), text.replace("{}", MASK), "{given}");
    }
}

#[test]
fn other_text_is_not_masked() {
    for text in [
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 and 9fceb02",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "src/core/compaction/summary/secrets.rs:120 and C:\\Users\\ann\\x.txt",
        "https://example.org:8443/a?b=c#d, mailto:ann@example.org, ann@example.org",
        "https://example.org/@ann:7 and git@github.com:ann/repo.git",
        "max_tokens: 4096, tokens=2000, token_count: 12345678, token: 5",
        "password: String, password = None, password: ${DB_PASSWORD}, password=os.environ['X']",
        "token: TokenKind::Identifier1, token = self.next_token(), token == other1234",
        "The password must be at least 8 characters. Passwords: never shared. password: must be long",
        "the password is known to Ann; a token of love; the secret to success: patience",
        "sk-learn-like-names-are-words and sk-short1",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "bearer of bad news; Bearer authentication-mechanisms",
        "api_key: <your key here>, api_key=***, secret: xxxxxxxx, password=[secret masked]",
        "+49 170 1234567, 4,999.00 EUR, v1.2.3-rc.1, 2026-03-15T12:00:00Z",
        "token at commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "the token for src/Core/Context2/Summary/Secrets.rs",
        "eyJust a word. password",
        "userPassword: config.password",
    ] {
        assert_eq!(mask_secrets(text), text);
    }
}

#[test]
fn long_texts_are_read_once() {
    // Each of these would take minutes if masking were not linear.
    for piece in ["-----BEGIN RSA PRIVATE KEY----- ! ", "a://b:", "password=", "eyJ.", "sk-", "token ", "-", "\"", "a"]
    {
        let text = piece.repeat(400_000 / piece.len());
        let _ = mask_secrets(&text);
    }
}

/// Returns the forms without quotes, because the text before a quoted one may end the quotation.
fn unquoted() -> impl Strategy<Value = (&'static str, &'static str)> {
    let forms: Vec<_> = MASKED.iter().filter(|(form, _)| !form.contains(['"', '\''])).copied().collect();
    proptest::sample::select(forms)
}

proptest! {
    #[test]
    fn masking_is_idempotent(text in "(\\PC|\n){0,120}") {
        let once = mask_secrets(&text).into_owned();
        prop_assert_eq!(mask_secrets(&once).into_owned(), once);
    }

    #[test]
    fn secrets_are_masked_in_any_surroundings(
        before in "([a-z .,=:\"'\n-]{0,12})",
        (form, secret) in unquoted(),
        after in "([ .,\"'\n][a-z .,=:\"'\n-]{0,12})?",
    ) {
        let text = format!("{before} {}{after}", form.replace("{}", secret));
        let once = mask_secrets(&text).into_owned();
        prop_assert!(!once.contains(secret) || secret.len() < 8, "{}", once);
        prop_assert_eq!(mask_secrets(&once).into_owned(), once.clone());
    }
}
