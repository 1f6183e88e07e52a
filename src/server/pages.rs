//! The chat page and the operator's page, over HTTP.

use super::{
    app::App,
    offered,
    web::{CHAT, OPERATOR, Page, Site},
};
use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use std::sync::Arc;

/// Returns the chat page.
pub(super) async fn chat(app: &Arc<App>, request: &HeaderMap) -> Response {
    site(app, &CHAT).await.page(request)
}

/// Handles a request for an asset of the chat page.
pub(super) async fn asset(State(app): State<Arc<App>>, Path(name): Path<String>, request: HeaderMap) -> Response {
    site(&app, &CHAT).await.asset(&name, &request)
}

/// Handles a request for the operator's page. The page itself is public; what it shows is not.
pub(super) async fn operators_page(State(app): State<Arc<App>>, request: HeaderMap) -> Response {
    site(&app, &OPERATOR).await.page(&request)
}

/// Handles a request for an asset of the operator's page.
pub(super) async fn operators_asset(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: HeaderMap,
) -> Response {
    site(&app, &OPERATOR).await.asset(&name, &request)
}

/// Returns a page. Building it takes some milliseconds of CPU time, so it does not run on a worker thread.
async fn site<'app>(app: &'app Arc<App>, page: &'static Page) -> &'app Site {
    let slot = &app.pages[page.place];
    if slot.get().is_none() {
        let app = app.clone();
        let build = move || {
            let deployment = app.registry.parts().deployment();
            let offered = offered::module(&deployment.strategies, &deployment.options);
            app.pages[page.place].get_or_init(|| Site::new(page, &offered));
        };
        tokio::task::spawn_blocking(build).await.expect("the embedded files are joined as in the tests");
    }
    slot.get().expect("it was built just now")
}
