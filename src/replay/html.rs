//! The report of a replay as one HTML page with tables and plots. It loads nothing, and supports light and dark mode.

use super::{
    Replay, Run,
    outcome::Outcome,
    plot::{self, Bar, Series},
    report,
};
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1f23;--dim:#6b7280;--rule:#d8dce2;--paper:#fff;\
--s0:#2f6db3;--s1:#c8503c;--s2:#3b8f5a;--s3:#b3761b;--s4:#8457a8;--s5:#1f8a94;--s6:#a3527d;--s7:#6f6f34}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#98a1ad;--rule:#3a4048;--paper:#16191d;\
--s0:#6ea8e6;--s1:#f0897a;--s2:#79c996;--s3:#e0aa5a;--s4:#bd97dc;--s5:#62c4ce;--s6:#dd92b9;--s7:#b5b574}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2rem auto;\
padding:0 1rem}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem;margin-bottom:.3rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .55rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}\
th{color:var(--dim);font-weight:600}td.t,th.t{text-align:left}svg{width:100%;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}.axis{stroke:var(--dim)}.grid{stroke:var(--rule)}\
.limit{stroke:var(--dim);stroke-dasharray:6 4}.line{fill:none;stroke-width:1.6}.dashed{stroke-dasharray:5 3}\
.s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.s4{stroke:var(--s4)}\
.s5{stroke:var(--s5)}.s6{stroke:var(--s6)}.s7{stroke:var(--s7)}\
.b0{fill:var(--s0)}.b1{fill:var(--s3)}.b2{fill:var(--s2)}.b3{fill:var(--s4)}\
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;margin:.2rem 0;font-size:13px}\
.key svg{width:26px;height:10px;vertical-align:middle}.dim,pre{color:var(--dim);font-size:13px}pre{white-space:pre-wrap}";

/// Returns the page.
pub(crate) fn page(replay: &Replay, notes: &[String]) -> String {
    let mut page = Page(String::new());
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>reseed replay</title>\n",
    );
    page.raw(&format!("<style>{STYLE}</style>\n</head>\n<body>\n<h1>Replay</h1>\n"));
    let conversations = if replay.sessions == 1 { "conversation" } else { "conversations" };
    page.paragraph(&format!(
        "{} {conversations}, {} texts of {} tokens.",
        replay.sessions,
        replay.texts,
        report::thousands(replay.tokens)
    ));
    page.table(&report::grid(replay.runs.iter().map(|run| (run, &run.total))));
    page.raw(&format!("<pre>{}</pre>\n", escaped(report::LEGEND)));
    page.heading(2, "Kept word for word at the end");
    kept(&mut page, replay);
    page.heading(2, "Tokens sent");
    sent(&mut page, replay);
    if replay.runs.iter().any(|run| run.total.dollars.is_some()) {
        page.heading(2, "Cost in dollars");
        cost(&mut page, replay);
    }
    for (name, outcomes) in &replay.plotted {
        page.heading(2, &format!("Conversation {name}"));
        plotted(&mut page, replay, outcomes);
    }
    if !notes.is_empty() {
        page.heading(2, "Remarks");
        page.raw(&format!("<pre>{}</pre>\n", escaped(&notes.join("\n"))));
    }
    page.raw("</body>\n</html>\n");
    page.0
}

fn kept(page: &mut Page, replay: &Replay) {
    type Share = fn(&Run) -> (u64, u64);
    let kinds: [(&str, Share); 2] = [
        ("Sources of the recorded questions", |run| (run.total.kept.sources, run.total.kept.sources_said)),
        ("The user's words", |run| (run.total.kept.user_tokens, run.total.kept.user_tokens_said)),
    ];
    for (name, share) in kinds {
        let bars: Vec<Bar> = replay
            .runs
            .iter()
            .filter(|run| share(run).1 > 0)
            .map(|run| {
                let (part, of) = share(run);
                let percent = 100.0 * number(part) / number(of);
                Bar { name: called(run), parts: vec![percent], number: format!("{percent:.1} %") }
            })
            .collect();
        if !bars.is_empty() {
            page.heading(3, name);
            page.raw(&plot::bars(&bars, Some(100.0)));
        }
    }
}

fn sent(page: &mut Page, replay: &Replay) {
    page.key(&[("b0", "a cache could have served"), ("b1", "new, or lost from the cache"), ("b3", "for summaries")]);
    let bar = |run: &Run| {
        let (turns, summaries) = (&run.total.turns, &run.total.summaries);
        let new = turns.input_tokens - turns.cached_tokens;
        let summaries = summaries.input_tokens + summaries.output_tokens;
        let all = turns.input_tokens + summaries;
        Bar {
            name: called(run),
            parts: vec![number(turns.cached_tokens), number(new), 0.0, number(summaries)],
            number: report::thousands(all),
        }
    };
    page.raw(&plot::bars(&replay.runs.iter().map(bar).collect::<Vec<_>>(), None));
}

fn cost(page: &mut Page, replay: &Replay) {
    page.key(&[("b0", "cached input"), ("b1", "other input"), ("b2", "answers"), ("b3", "summaries")]);
    let bar = |run: &Run| {
        let dollars = run.total.dollars?;
        let parts = [dollars.cached_nano_usd, dollars.input_nano_usd, dollars.output_nano_usd];
        let parts = parts.into_iter().chain([dollars.summaries_nano_usd]).map(number).collect();
        Some(Bar { name: called(run), parts, number: report::dollar(dollars.total()) })
    };
    page.raw(&plot::bars(&replay.runs.iter().filter_map(bar).collect::<Vec<_>>(), None));
}

/// Plots a conversation for each window and summariser: the context, and what is kept after every compaction.
fn plotted(page: &mut Page, replay: &Replay, outcomes: &[Outcome]) {
    let mut windows: Vec<u64> = replay.runs.iter().map(|run| run.window_tokens).collect();
    windows.dedup();
    for window_tokens in windows {
        let runs: Vec<(&Run, &Outcome)> =
            replay.runs.iter().zip(outcomes).filter(|(run, _)| run.window_tokens == window_tokens).collect();
        let name = |run: &Run| match run.summariser {
            Some(summariser) => format!("{}, {summariser}", run.policy),
            None => run.policy.clone(),
        };
        page.heading(3, &format!("Tokens of each request, window {window_tokens}"));
        let items = runs.iter().enumerate().map(|(at, (run, _))| (plot::class(at), name(run)));
        page.lines_key(&items.collect::<Vec<_>>());
        let context = runs.iter().enumerate().map(|(colour, (run, outcome))| {
            let requests = outcome.requests.iter().enumerate();
            let points = requests.map(|(at, tokens)| (number(at as u64 + 1), number(*tokens))).collect();
            Series { name: name(run), colour, points }
        });
        let context: Vec<Series> = context.collect();
        page.raw(&plot::steps(&context, Some(number(window_tokens)), ("requests", "tokens")));
        let curve = runs.iter().enumerate().map(|(colour, (run, outcome))| {
            let share = |kept: &super::meter::Kept| {
                let (part, of) = match kept.sources_said {
                    0 => (kept.user_tokens, kept.user_tokens_said),
                    said => (kept.sources, said),
                };
                if of == 0 { 100.0 } else { 100.0 * number(part) / number(of) }
            };
            let after = outcome.curve.iter().map(|point| (number(point.request), share(&point.kept)));
            let end = (number(outcome.requests.len() as u64), share(&outcome.kept));
            let points = std::iter::once((0.0, 100.0)).chain(after).chain([end]).collect();
            Series { name: name(run), colour, points }
        });
        let has_sources = outcomes.iter().any(|outcome| outcome.kept.sources_said > 0);
        let what = if has_sources { "Kept sources" } else { "The user's words kept" };
        page.heading(3, &format!("{what} after every compaction, in percent, window {window_tokens}"));
        page.raw(&plot::steps(&curve.collect::<Vec<_>>(), None, ("requests", "percent of what was said by then")));
    }
}

fn called(run: &Run) -> String {
    let summariser = run.summariser.map(|name| format!(", {name}")).unwrap_or_default();
    format!("{}{summariser}, {}", run.policy, run.window_tokens)
}

#[expect(clippy::cast_precision_loss, reason = "a plot has a thousand pixels")]
fn number(value: u64) -> f64 {
    value as f64
}

/// A page that is being written. External text is escaped.
struct Page(String);

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    fn heading(&mut self, level: u8, text: &str) {
        let _ = writeln!(self.0, "<h{level}>{}</h{level}>", escaped(text));
    }

    fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p>{}</p>", escaped(text));
    }

    /// Writes a table whose first row is its heading. The second and third columns are text.
    fn table(&mut self, rows: &[Vec<String>]) {
        self.raw("<div class=\"wide\"><table>\n");
        for (at, row) in rows.iter().enumerate() {
            let tag = if at == 0 { "th" } else { "td" };
            self.raw("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let class = if report::TEXTS.contains(&column) { " class=\"t\"" } else { "" };
                let _ = write!(self.0, "<{tag}{class}>{}</{tag}>", escaped(cell));
            }
            self.raw("</tr>\n");
        }
        self.raw("</table></div>\n");
    }

    /// Writes the legend for the colours of bars.
    fn key(&mut self, items: &[(&str, &str)]) {
        self.raw("<ul class=\"key\">");
        for (class, name) in items {
            let _ = write!(
                self.0,
                "<li><svg viewBox=\"0 0 26 10\"><rect width=\"26\" height=\"10\" class=\"{class}\"/></svg> {}</li>",
                escaped(name)
            );
        }
        self.raw("</ul>\n");
    }

    /// Writes the legend for the colours of lines.
    fn lines_key(&mut self, items: &[(String, String)]) {
        self.raw("<ul class=\"key\">");
        for (class, name) in items {
            let _ = write!(
                self.0,
                "<li><svg viewBox=\"0 0 26 10\"><path d=\"M0 5H26\" class=\"{class}\"/></svg> {}</li>",
                escaped(name)
            );
        }
        self.raw("</ul>\n");
    }
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}
