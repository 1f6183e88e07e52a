//! Every exchange that was recorded from a real server (`tests/fixtures/upstream/`), played back over a socket; the
//! expected outcome stands beside its name.

use super::{ask, hello, options};
use crate::support::upstream::{Reply, Setup, Upstream};
use reseed::provider::{
    Provider,
    openai::{ApiChoice, OpenAi, OpenAiOptions},
    retry::RetryPolicy,
};
use std::{fmt::Write as _, fs, num::NonZeroU32, path::Path};

/// One exchange of a recording.
#[derive(Debug, Default)]
struct Exchange {
    name: String,
    status: u16,
    kind: String,
    retry_after: Option<String>,
    lines: Vec<String>,
}

/// Reads a recording: `== name`, a line with status, type and headers, then the lines of the body. Middles of long
/// streams and ends of long lines were left out when it was made.
fn read(text: &str) -> Vec<Exchange> {
    let (mut exchanges, mut section) = (Vec::<Exchange>::new(), String::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("##### ") {
            section = format!("{name}/");
        } else if let Some(name) = line.strip_prefix("== ") {
            exchanges.push(Exchange { name: format!("{section}{name}"), ..Exchange::default() });
        } else if let (Some(exchange), Some(status)) = (exchanges.last_mut(), line.strip_prefix("  status ")) {
            let mut fields = status.split("; ");
            exchange.status = fields.next().unwrap()[..3].parse().unwrap();
            exchange.kind = fields.next().unwrap().to_owned();
            exchange.retry_after = fields.find_map(|field| field.strip_prefix("retry-after=")).map(str::to_owned);
        } else if let (Some(exchange), Some(body)) = (exchanges.last_mut(), line.strip_prefix("    "))
            && !body.starts_with("... ")
        {
            exchange.lines.push(body.to_owned());
        }
    }
    exchanges
}

impl Exchange {
    fn reply(&self) -> Reply {
        if self.kind.starts_with("text/event-stream") {
            let events: String = self.lines.iter().fold(String::new(), |mut events, line| {
                let end = if line.starts_with("data:") { "\n\n" } else { "\n" };
                let _ = write!(events, "{line}{end}");
                events
            });
            return Reply::Stream(events, Vec::new());
        }
        let kind = if self.kind.starts_with("text/plain") { "text/plain" } else { "application/json" };
        let headers = self.retry_after.iter().map(|after| ("retry-after", after.clone())).collect();
        Reply::Plain { status: self.status, headers, kind, body: self.lines.join("\n") }
    }

    /// Returns the provider's result for it, in one line.
    async fn outcome(&self) -> String {
        let api = if self.name.contains("responses") { ApiChoice::Responses } else { ApiChoice::Chat };
        let reply = self.reply();
        let models = serde_json::from_str(&self.lines.join("")).unwrap_or_default();
        let upstream = Upstream::start_with(Setup { models, ..Setup::default() }, move |_| reply.clone()).await;
        let retry = RetryPolicy { tries_max: NonZeroU32::MIN, ..RetryPolicy::default() };
        let provider = OpenAi::new(OpenAiOptions { retry, ..options(upstream.base_url(), api) }).unwrap();
        if self.name.ends_with("models") {
            let listed = provider.models().await.unwrap();
            let listed: Vec<_> = listed.iter().map(|model| (model.id.as_str(), model.window_tokens)).collect();
            return format!("{listed:?}");
        }
        match ask(&provider, &hello()).await {
            (Ok(answer), shown) => {
                let usage = answer.usage.map(|usage| {
                    let cached = usage.cached_tokens.map(|n| format!(", {n} cached")).unwrap_or_default();
                    format!(" {}+{}{cached}", usage.input_tokens, usage.output_tokens)
                });
                format!("{:?}{} {}", answer.stop_reason, usage.unwrap_or_default(), shown.0.join(""))
            }
            (Err(fault), _) => {
                let mut line = fault.code.to_string();
                if let Some(prompt) = fault.overflow.prompt_tokens {
                    let _ = write!(line, " {prompt}");
                }
                if let Some(window) = fault.overflow.window_tokens {
                    let _ = write!(line, " of {window}");
                }
                if let Some(wait) = fault.retry_after_ms {
                    let _ = write!(line, " after {wait} ms");
                }
                line
            }
        }
    }
}

#[tokio::test]
async fn every_recorded_exchange_has_its_outcome() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/upstream");
    let mut seen = String::new();
    for server in ["llama-server", "llama-cpp-python", "litellm-over-llama-server", "litellm-over-llama-cpp-python"] {
        let text = fs::read_to_string(folder.join(format!("{server}.txt"))).unwrap();
        let _ = writeln!(seen, "# {server}");
        for exchange in read(&text) {
            // These were cut by the recorder itself, and have no body.
            let outcome = if exchange.lines.is_empty() && exchange.name.ends_with("disconnect") {
                "-".to_owned()
            } else {
                exchange.outcome().await
            };
            let _ = writeln!(seen, "{}: {outcome}", exchange.name);
        }
    }
    let expected = folder.join("outcomes.txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&expected, &seen).unwrap();
    }
    assert_eq!(seen, fs::read_to_string(expected).unwrap());
}
