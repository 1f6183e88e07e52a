//! The web page, embedded in the binary: plain files, nothing from any other address.

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

/// What the page may do: load its own files and talk to its own server. Scripts in a model's text cannot run.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! assets {
    ($($name:literal)*) => {
        /// Every file of the page but `index.html`, by name.
        const ASSETS: &[(&str, &str)] = &[$(($name, include_str!(concat!("web/", $name))),)*];
    };
}

assets! {
    "app.js" "cache.js" "chat.css" "chat.js" "command-menu.js" "commands.js" "compact-dialog.js" "compaction.js" "composer.js" "connection.js"
    "context.css" "context.js" "credentials.js" "dialogs.js" "difference-view.js" "difference.js" "directory.js"
    "dom.js" "edit.js" "errors.js" "fold-context.js" "fold.js" "follow.js" "gauge.js" "icon.svg" "layout.css" "lines.js" "long-text.js" "main.js"
    "markdown-blocks.js" "markdown-entities.js" "markdown-inline.js" "markdown.js" "message.js" "moves.js" "panels.css" "patch.js" "pins-view.js"
    "queue.js" "report.js" "request-view.js" "request.css" "request.js" "row-tools.js" "sessions.js" "strategies.js"
    "strategy-view.js" "stretch.js" "theme.js" "toasts.js" "tokens.css" "transform.js" "tree-rows.js" "tree-source.js"
    "tree-view.js" "tree.css" "tree.js"
}

/// The page.
pub(super) fn index() -> Response {
    file("text/html; charset=utf-8", include_str!("web/index.html"))
}

/// One of its files.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let Some((_, text)) = ASSETS.iter().find(|(known, _)| *known == name) else {
        return (StatusCode::NOT_FOUND, "there is no such file\n").into_response();
    };
    let kind = match name.rsplit_once('.').map(|(_, kind)| kind) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    file(kind, text)
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        // A new version of the server is a new version of the page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    /// Files that are not the page's own: its types for editors and its tests.
    const OTHERS: &[&str] = &["index.html"];

    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/web");
        let mut found: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        found.retain(|name| !OTHERS.contains(&name.as_str()));
        found.sort();
        let served: Vec<&str> = super::ASSETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, served);
    }
}
