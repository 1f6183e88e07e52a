//! Logging: structured lines on standard error, as set by `LOG_LEVEL` and `LOG_FORMAT`.
//!
//! Message text, keys and tokens are never logged, at any level. No formatter hides them; the types that carry them are
//! never passed to a log line, and keys are `SecretString`s, which print nothing.

use crate::config::{LogFormat, LogSettings};
use std::io;
use tracing::{Level, Subscriber};
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::filter_fn,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

/// Libraries that log bodies, headers and frames below `info`. They are limited to `info` whatever `LOG_LEVEL` says,
/// because what they log contains message text and keys.
const CHATTY_CRATES: &[&str] = &[
    "async_openai",
    "h2",
    "hyper",
    "hyper_util",
    "postgres_protocol",
    "reqwest",
    "rustls",
    "tokio_postgres",
    "tungstenite",
];

/// Libraries that log messages at every level. They are never heard: `tools::mcp` says what matters of them.
const SILENT_CRATES: &[&str] = &["rmcp", "sse_stream"];

/// The reason logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The filter is invalid. [`crate::config`] checks it first.
    #[error("LOG_LEVEL: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Logging is already set up in this process.
    #[error("logging is already set up: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
    /// The subscriber is gone.
    #[error("change LOG_LEVEL: {0}")]
    Gone(#[from] reload::Error),
}

/// Changes what is logged.
#[derive(Debug, Clone)]
pub(crate) struct LogLevel(reload::Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Logs what this filter says from now on.
    ///
    /// # Errors
    /// Logging has ended.
    pub(crate) fn change(&self, filter: EnvFilter) -> Result<(), Error> {
        Ok(self.0.reload(filter)?)
    }
}

/// Returns the filter of these settings.
///
/// # Errors
/// An invalid one.
pub(crate) fn filter(settings: &LogSettings) -> Result<EnvFilter, Error> {
    Ok(EnvFilter::builder().parse(&settings.log_level)?)
}

/// Sets up logging for this process, once.
///
/// # Errors
/// An invalid filter, or a second call.
pub(crate) fn install(settings: &LogSettings) -> Result<LogLevel, Error> {
    let (subscriber, level) = subscriber(settings, io::stderr)?;
    subscriber.try_init()?;
    Ok(level)
}

/// Builds the subscriber, which writes to `writer`.
fn subscriber<W>(settings: &LogSettings, writer: W) -> Result<(Box<dyn Subscriber + Send + Sync>, LogLevel), Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (chosen, level) = reload::Layer::new(filter(settings)?);
    let quiet = filter_fn(|about| {
        let name = about.target().split("::").next().unwrap_or_default();
        !SILENT_CRATES.contains(&name) && (*about.level() <= Level::INFO || !CHATTY_CRATES.contains(&name))
    });
    let registry = tracing_subscriber::registry().with(chosen).with(quiet);
    let lines = fmt::layer().with_writer(writer).with_ansi(false);
    let subscriber: Box<dyn Subscriber + Send + Sync> = match settings.log_format {
        LogFormat::Text => Box::new(registry.with(lines)),
        LogFormat::Json => Box::new(registry.with(lines.json().flatten_event(true))),
    };
    Ok((subscriber, LogLevel(level)))
}

#[cfg(test)]
mod tests {
    use super::subscriber;
    use crate::{config::Settings, testing::Written};

    /// Logs one line of each kind with these settings and returns what was written.
    fn logged(level: &str, format: &str) -> String {
        let settings = Settings::from_iter([("LOG_LEVEL", level), ("LOG_FORMAT", format)]).unwrap();
        let written = Written::default();
        let writer = written.clone();
        let (subscriber, _) = subscriber(&settings.log, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(session = "s1", "opened");
            tracing::debug!("detail");
            tracing::debug!(target: "hyper::proto", "body of a request");
            tracing::error!(target: "rmcp::service", "body of a message");
        });
        written.text()
    }

    #[test]
    fn the_level_can_be_changed() {
        let settings = |level| Settings::from_iter([("LOG_LEVEL", level)]).unwrap().log;
        let written = Written::default();
        let writer = written.clone();
        let (subscriber, level) = subscriber(&settings("warn"), move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            for (level_now, line) in [("warn", "one"), ("debug", "two"), ("error", "three")] {
                level.change(super::filter(&settings(level_now)).unwrap()).unwrap();
                tracing::debug!("{line}");
                tracing::debug!(target: "hyper::proto", "body of a request");
            }
        });
        let text = written.text();
        assert!(text.contains("two") && !text.contains("one") && !text.contains("three"), "{text}");
        assert!(!text.contains("body"), "{text}");
    }

    #[test]
    fn level_and_format_are_as_set_and_libraries_never_log_bodies() {
        let text = logged("info", "text");
        assert!(text.contains("opened") && text.contains("session=\"s1\"") && !text.contains("detail"), "{text}");
        assert!(logged("warn", "text").is_empty());
        for level in ["trace", "info,hyper=trace", "trace,hyper::proto=trace", "info,rmcp=trace"] {
            let text = logged(level, "text");
            assert!(text.contains("opened") && !text.contains("body"), "{level}: {text}");
        }
        let line = logged("info", "json");
        let value: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
        assert_eq!(
            (&value["message"], &value["session"], &value["level"]),
            (&"opened".into(), &"s1".into(), &"INFO".into())
        );
    }
}
