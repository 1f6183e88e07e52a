//! The web pages, embedded in the binary: the chat page and the operator's page. They load nothing from other
//! addresses.
//!
//! The many files of a page are bundled when it is first requested: a script, the scripts of rarely used parts that it
//! loads lazily, a style sheet, the script that runs before the page is drawn, and the icon.
//!
//! Invariants:
//! - An asset's name contains the hash of its content, so a browser caches it without ever revalidating it.
//! - `index.html` and the main script name the assets of this build. `index.html` is sent again only when its ETag has
//!   changed.

use super::{bundle, offered};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::Engine as _;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use std::io::Write as _;

/// The page's permissions: it may load its own files and connect to its own server. Scripts in a model's text cannot
/// run.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An asset with a hashed name never changes. A year is the longest time that caches respect.
const CACHE_ASSET: &str = "public, max-age=31536000, immutable";

/// A new version of the server has a new page, so the browser must revalidate it.
const CACHE_PAGE: &str = "no-cache";

/// Bytes of a hash in a name and an ETag. This is enough to avoid collisions between versions of a file.
const HASH_BYTES: usize = 12;

macro_rules! files {
    ($($name:literal)*) => {
        /// Every file of the pages except their `index.html`, by name.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("web/", $name))),)*];
    };
}

files! {
    "app.js" "approvals.js" "approving.js" "attached.js" "attachments.js" "became.js" "branching.js" "cache.js"
    "chart.js" "chat.css" "chat.js" "client.js" "code-colours.js" "command-menu.js" "commands.js" "compact-dialog.js"
    "compaction.js" "composer.js" "context.css" "context.js" "credentials.js" "dialogs.js" "difference-view.js"
    "difference.js" "dom.js" "drafts.js" "edit.js" "endings.js" "errors.js" "export-dialog.js" "export.js" "files.js"
    "follow.js" "found-words.js" "frames.js" "gauge.js" "highlight.js" "icon.svg" "layout.css" "lines.js" "long-text.js"
    "main.js" "markdown-blocks.js" "markdown-entities.js" "markdown-inline.js" "markdown.js" "menu.js" "message.js"
    "model-dialog.js" "models.js" "moves.js" "notices.js" "offered-strategies.js" "open-session.js" "operator/api.js"
    "operator/format.js" "operator/levers.js" "operator/main.js" "operator/operator.css" "operator/parts.js"
    "operator/plot.js" "operator/prometheus.js" "operator/series.js" "operator/servers-view.js"
    "operator/session-list.js" "operator/session-store.js" "operator/session-view.js" "operator/sessions-view.js"
    "operator/tree-shape.js" "operator/usage-view.js" "operator/users-view.js" "panels.css" "patch.js" "pins-view.js"
    "presence-view.js" "presence.js" "print.css" "queue.js" "report.js" "request-view.js" "request.css" "request.js"
    "row-tools.js" "search-dialog.js" "search.css" "searching.js" "sending.js" "sessions.js" "settings-dialog.js"
    "snapshot.js" "strategies.js" "strategy-settings.js" "strategy-view.js" "stretch.js" "theme.js" "timeline-dialog.js"
    "timeline.js" "toasts.js" "tokens.css" "tool-calls.js" "tools-dialog.js" "tools.css" "transform.js" "tree-rows.js"
    "tree-source.js" "tree-view.js" "tree.css" "tree.js" "visible.js" "wire-log.js" "wire-view.js"
}

/// A page.
pub(super) struct Page {
    /// Its place in [`App::pages`](super::app::App::pages).
    pub(super) place: usize,
    html: &'static str,
    /// The module that imports all others.
    main: &'static str,
    /// The folder of its assets in the markup.
    assets: &'static str,
    /// The style sheets, in the order in which they apply.
    sheets: &'static [&'static str],
}

/// The chat page.
pub(super) static CHAT: Page = Page {
    place: 0,
    html: include_str!("web/index.html"),
    main: "main.js",
    assets: "assets/",
    sheets: &[
        "tokens.css",
        "layout.css",
        "chat.css",
        "tools.css",
        "panels.css",
        "tree.css",
        "context.css",
        "request.css",
        "search.css",
        "print.css",
    ],
};

/// The operator's page.
pub(super) static OPERATOR: Page = Page {
    place: 1,
    html: include_str!("web/operator/index.html"),
    main: "operator/main.js",
    assets: "operator/assets/",
    sheets: &["tokens.css", "operator/operator.css"],
};

/// A file in the form in which it is served.
struct Asset {
    name: String,
    kind: &'static str,
    cache: &'static str,
    etag: HeaderValue,
    plain: Bytes,
    gzip: Bytes,
}

pub(crate) struct Site {
    index: Asset,
    assets: Vec<Asset>,
}

impl Site {
    /// Builds a page with this list of strategies.
    pub(super) fn new(page: &Page, offered: &str) -> Self {
        let Page { html, main, assets: folder, sheets, .. } = page;
        let modules: Vec<(&str, &str)> =
            FILES.iter().map(|&(name, text)| (name, if name == offered::FILE { offered } else { text })).collect();
        let scripts = bundle::scripts(&modules, main).expect("a test joins the same modules");
        let lazy = scripts.lazy.into_iter().map(|(name, text)| (Asset::hashed(&name, text.into_bytes()), name));
        let lazy: Vec<(Asset, String)> = lazy.collect();
        let script = lazy.iter().fold(scripts.main, |script, (asset, name)| {
            script.replace(&format!("$load(\"./{name}\""), &format!("$load(\"./{}\"", asset.name))
        });
        let styles = bundle::styles(sheets.iter().map(|name| file(name)));
        let mut assets = vec![
            Asset::hashed("main.js", script.into_bytes()),
            Asset::hashed("style.css", styles.into_bytes()),
            Asset::hashed("theme.js", file("theme.js").into()),
            Asset::hashed("icon.svg", file("icon.svg").into()),
        ];
        let [main, style, theme, icon] = &assets[..] else { unreachable!("there are four") };
        let mut page = String::new();
        for line in html.lines() {
            let is_sheet = line.trim_start().starts_with("<link rel=\"stylesheet\"");
            // The bundled sheet replaces all of them.
            if is_sheet && page.contains(&style.name) {
                continue;
            }
            let line = if is_sheet { line.replace(sheets[0], &style.name) } else { line.to_owned() };
            page.push_str(&line);
            page.push('\n');
        }
        for (plain, hashed) in [("main.js", main), ("theme.js", theme), ("icon.svg", icon)] {
            page = page.replace(&format!("\"{folder}{plain}\""), &format!("\"{folder}{}\"", hashed.name));
        }
        assets.extend(lazy.into_iter().map(|(asset, _)| asset));
        Self { index: Asset::new("index.html".to_owned(), CACHE_PAGE, page.into_bytes()), assets }
    }

    /// Answers a request for the page.
    pub(super) fn page(&self, request: &HeaderMap) -> Response {
        self.index.answer(request)
    }

    /// Answers a request for one of the page's assets.
    pub(super) fn asset(&self, name: &str, request: &HeaderMap) -> Response {
        match self.assets.iter().find(|asset| asset.name == name) {
            Some(asset) => asset.answer(request),
            None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
        }
    }
}

/// Returns a file of the page by name.
fn file(name: &str) -> &'static str {
    FILES.iter().find(|(known, _)| *known == name).expect("the name is one of those above").1
}

impl Asset {
    /// Creates an asset with the hash of its content in its name.
    fn hashed(name: &str, plain: Vec<u8>) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name);
        let (stem, kind) = name.rsplit_once('.').expect("every name has a kind");
        Self::new(format!("{stem}-{}.{kind}", hash(&plain)), CACHE_ASSET, plain)
    }

    fn new(name: String, cache: &'static str, plain: Vec<u8>) -> Self {
        let kind = match name.rsplit_once('.').map(|(_, kind)| kind) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzip = encoder.write_all(&plain).and_then(|()| encoder.finish()).expect("memory takes all");
        // Weak, because the same content is sent in two encodings.
        let etag = HeaderValue::try_from(format!("W/\"{}\"", hash(&plain))).expect("a hash is ASCII");
        Self { name, kind, cache, etag, plain: plain.into(), gzip: gzip.into() }
    }

    fn answer(&self, request: &HeaderMap) -> Response {
        let gzip = takes_gzip(request);
        let known = is_known(request, &self.etag);
        let mut response = match known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => Body::from(if gzip { self.gzip.clone() } else { self.plain.clone() }).into_response(),
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(self.cache));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
        headers.insert(header::ETAG, self.etag.clone());
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if !known {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
            if gzip {
                headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        response
    }
}

/// Returns the beginning of a SHA-256 hash in URL-safe base64.
fn hash(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&digest.as_ref()[..HASH_BYTES])
}

/// Returns the elements of a header's comma-separated lists.
fn elements(request: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    request.get_all(name).iter().filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).map(str::trim)
}

/// Returns true if the browser accepts gzip, by name or by `*`.
fn takes_gzip(request: &HeaderMap) -> bool {
    let weight = |wanted: &str| {
        elements(request, header::ACCEPT_ENCODING).find_map(|element| {
            let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
            let weight = parameters.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
            name.trim().eq_ignore_ascii_case(wanted).then(|| weight.unwrap_or(1.0))
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

/// Returns true if the browser has this version.
fn is_known(request: &HeaderMap, etag: &HeaderValue) -> bool {
    let etag = etag.to_str().unwrap_or_default();
    let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
    elements(request, header::IF_NONE_MATCH).any(|known| known == "*" || opaque(known) == opaque(etag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::compaction::{factory::Strategies, strategies::truncate::Truncate, strategy::Options};
    use std::io::Read as _;

    /// Files that are not bundled: the pages themselves, their README, and types for the compiler that checks them.
    const OTHERS: &[&str] = &["README.md", "index.html", "client.d.ts", "operator", "operator/index.html"];

    /// The first assets; the main script names the others.
    const NAMED_BY_PAGE: usize = 4;

    #[test]
    fn every_file_of_the_page_is_embedded() {
        let names = |folder: &str| {
            let path = format!("{}/src/server/web/{folder}", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
            files.map(|name| format!("{folder}{name}")).collect::<Vec<String>>()
        };
        let mut found = [names(""), names("operator/")].concat();
        found.retain(|name| !OTHERS.contains(&name.as_str()));
        found.sort();
        let embedded: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, embedded);
    }

    #[test]
    fn a_page_names_every_asset_and_no_file() {
        let both: Vec<String> = [&CHAT, &OPERATOR].into_iter().map(names_every_asset).collect();
        let sheets = FILES.iter().filter(|(name, _)| name.ends_with(".css")).map(|(name, _)| *name);
        for name in sheets {
            assert!(CHAT.sheets.contains(&name) || OPERATOR.sheets.contains(&name), "{name} is on no page");
        }
        for (name, _) in FILES.iter().filter(|(name, _)| name.ends_with(".js") && *name != "theme.js") {
            let variable = format!("const ${}=", name.trim_end_matches(".js").replace(['-', '/'], "_"));
            assert!(both.iter().any(|scripts| scripts.contains(&variable)), "{name} is imported by nothing");
        }
    }

    /// Checks the names in a page, and returns its scripts.
    fn names_every_asset(about: &Page) -> String {
        let site = Site::new(about, file(offered::FILE));
        let page = std::str::from_utf8(&site.index.plain).unwrap();
        let script = std::str::from_utf8(&site.assets[0].plain).unwrap();
        for (index, asset) in site.assets.iter().enumerate() {
            let (text, folder) = if index < NAMED_BY_PAGE { (page, about.assets) } else { (script, "./") };
            assert!(text.contains(&format!("\"{folder}{}\"", asset.name)), "{}", asset.name);
        }
        let named: Vec<&str> = page.split(&format!("\"{}", about.assets)).skip(1).collect();
        assert!(named.iter().all(|rest| site.assets.iter().any(|asset| rest.starts_with(&asset.name))), "{page}");
        let scripts = site.assets.iter().filter(|asset| asset.name.ends_with(".js"));
        scripts.map(|asset| std::str::from_utf8(&asset.plain).unwrap()).collect()
    }

    #[test]
    fn the_script_lists_the_strategies_of_this_server() {
        let own = Strategies::default().with("own_one", &[], |options| Box::new(Truncate::new(options))).unwrap();
        let defaults = Options { keep_turns: 4_321, ..Options::default() };
        let plain = Site::new(&CHAT, file(offered::FILE));
        let site = Site::new(&CHAT, &offered::module(&own, &defaults));
        let script = std::str::from_utf8(&site.assets[0].plain).unwrap();
        assert!(script.contains("\"name\": \"own_one\"") && script.contains("\"keepTurns\": 4321"), "{script}");
        assert_ne!(site.assets[0].name, plain.assets[0].name);
        assert_eq!(site.assets[1].name, plain.assets[1].name);
    }

    #[test]
    fn encodings_and_versions_are_negotiated() {
        let asset = Asset::hashed("a.js", b"let a = 1;\n".repeat(50));
        let etag = asset.etag.to_str().unwrap().to_owned();
        let table = [
            (vec![], 200, false),
            (vec![("accept-encoding", "gzip, deflate, br")], 200, true),
            (vec![("accept-encoding", "br;q=1.0, GZIP;q=0.5")], 200, true),
            (vec![("accept-encoding", "*")], 200, true),
            (vec![("accept-encoding", "br, gzip;q=0")], 200, false),
            (vec![("accept-encoding", "*, gzip;q=0.0")], 200, false),
            (vec![("accept-encoding", "identity")], 200, false),
            (vec![("if-none-match", etag.as_str())], 304, false),
            (vec![("if-none-match", "\"x\", *"), ("accept-encoding", "gzip")], 304, false),
            (vec![("if-none-match", etag.trim_start_matches("W/"))], 304, false),
            (vec![("if-none-match", "\"x\"")], 200, false),
        ];
        for (request, status, gzip) in table {
            let mut headers = HeaderMap::new();
            for (name, value) in &request {
                headers.append(*name, HeaderValue::from_str(value).unwrap());
            }
            let response = asset.answer(&headers);
            assert_eq!(response.status(), status, "{request:?}");
            assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), gzip, "{request:?}");
            assert_eq!(response.headers()[header::VARY], "accept-encoding");
            assert_eq!(response.headers()[header::ETAG], etag);
            assert_eq!(response.headers()[header::CACHE_CONTROL], CACHE_ASSET);
        }
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&asset.gzip[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, asset.plain);
        assert!(asset.gzip.len() * 4 < asset.plain.len());
    }
}
