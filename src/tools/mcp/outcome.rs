//! Converts a call's result for the model: to text, and to images as `data:` URLs.

use crate::tools::Output;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use std::fmt::Write as _;

/// Maximum images of one result. Each costs about a thousand tokens.
const IMAGES_MAX: usize = 16;

/// Maximum bytes of one image as base64. OpenAI accepts 20 MB, and a whole message has 16 MiB.
const IMAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The kinds of images that models accept.
const IMAGE_KINDS: &[&str] = &["image/png", "image/jpeg", "image/webp", "image/gif"];

/// Maximum characters of an external word, such as an address or a kind, in a description.
const WORD_CHARS_MAX: usize = 2_000;

/// Returns the output of a call.
pub(super) fn output(result: CallToolResult) -> Output {
    let mut text = Vec::new();
    let mut images = Vec::new();
    // False if all texts are notes about content that is not shown.
    let mut says = false;
    for block in result.content {
        match block {
            ContentBlock::Text(part) => {
                says |= !part.text.starts_with("[content ");
                text.push(part.text);
            }
            ContentBlock::Image(part) => match image(&part.mime_type, &part.data, images.len()) {
                Ok(url) => images.push(url),
                Err(why) => text.push(why),
            },
            ContentBlock::Audio(part) => {
                text.push(format!("[audio, {}, {}: not shown]", word(&part.mime_type), size(&part.data)));
            }
            ContentBlock::Resource(part) => match part.resource {
                ResourceContents::TextResourceContents { uri, text: content, .. } => {
                    says = true;
                    text.push(format!("[resource {}]\n{content}", word(&uri)));
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let kind = mime_type.unwrap_or_default();
                    match image(&kind, &blob, images.len()) {
                        Ok(url) => {
                            text.push(format!("[resource {}, {}: shown as an image]", word(&uri), word(&kind)));
                            images.push(url);
                        }
                        Err(_) => {
                            let kind = if kind.is_empty() { "binary" } else { &kind };
                            text.push(format!("[resource {}, {}, {}: not shown]", word(&uri), word(kind), size(&blob)));
                        }
                    }
                }
                _ => text.push("[a resource of a kind that is not known]".to_owned()),
            },
            ContentBlock::ResourceLink(link) => {
                let mut line =
                    format!("[link to {} ({})", word(&link.uri), word(link.title.as_ref().unwrap_or(&link.name)));
                for detail in link.mime_type.iter().chain(&link.description) {
                    let _ = write!(line, ", {}", word(detail));
                }
                text.push(line + "]");
            }
            _ => text.push("[content of a kind that is not known]".to_owned()),
        }
    }
    // A server that sends both repeats the structure as text.
    if !says && let Some(structure) = result.structured_content {
        text.push(structure.to_string());
    }
    let is_error = result.is_error == Some(true);
    if text.is_empty() && images.is_empty() {
        text.push(if is_error { "The tool failed and did not say why." } else { "[no content]" }.to_owned());
    }
    Output { text: text.join("\n"), images, is_error }
}

/// Returns an image as a URL, or the description of one that models do not accept.
fn image(kind: &str, data: &str, images: usize) -> Result<String, String> {
    let kind = kind.trim().to_ascii_lowercase();
    let kind = if kind == "image/jpg" { "image/jpeg" } else { &kind };
    let refused = |why: &str| Err(format!("[image, {}, {}: not shown, {why}]", word(kind), size(data)));
    if !IMAGE_KINDS.contains(&kind) {
        return refused("since models do not take this kind");
    }
    if data.len() > IMAGE_BYTES_MAX {
        return refused(&format!("since it has more than {IMAGE_BYTES_MAX} bytes"));
    }
    if images >= IMAGES_MAX {
        return refused(&format!("since a result may have {IMAGES_MAX} images"));
    }
    let clean: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    if clean.is_empty() || STANDARD.decode(&clean).is_err() {
        return refused("since it is not base64");
    }
    Ok(format!("data:{kind};base64,{clean}"))
}

/// Describes the size of base64 data.
fn size(data: &str) -> String {
    format!("about {} bytes", data.len() / 4 * 3)
}

/// Returns an external word on one line, with limited length.
fn word(text: &str) -> String {
    let mut word: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORD_CHARS_MAX).collect();
    if text.chars().nth(WORD_CHARS_MAX).is_some() {
        word.push('…');
    }
    word
}

#[cfg(test)]
mod tests {
    use super::{IMAGE_BYTES_MAX, output};
    use crate::tools::Output;
    use serde_json::{Value, json};

    fn of(result: Value) -> Output {
        output(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn every_kind_of_content_has_its_form() {
        let png = json!({ "type": "image", "mimeType": "image/png", "data": "iVBO\nRw0K" });
        for (result, text, images) in [
            (json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }), "a\nb", vec![]),
            (json!({ "content": [png] }), "", vec!["data:image/png;base64,iVBORw0K"]),
            (
                json!({ "content": [{ "type": "image", "mimeType": "image/JPG", "data": "iVBORw0K" }] }),
                "",
                vec!["data:image/jpeg;base64,iVBORw0K"],
            ),
            (
                json!({ "content": [{ "type": "image", "mimeType": "image/svg+xml", "data": "iVBORw0K" }] }),
                "[image, image/svg+xml, about 6 bytes: not shown, since models do not take this kind]",
                vec![],
            ),
            (
                json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": "!" }] }),
                "[image, image/png, about 0 bytes: not shown, since it is not base64]",
                vec![],
            ),
            (
                json!({ "content": [{ "type": "audio", "mimeType": "audio/wav", "data": "UklGRg==" }] }),
                "[audio, audio/wav, about 6 bytes: not shown]",
                vec![],
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": { "uri": "file:///a", "text": "inside" } }] }),
                "[resource file:///a]\ninside",
                vec![],
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": { "uri": "x://b", "mimeType": "application/gzip", "blob": "H4sI" } }] }),
                "[resource x://b, application/gzip, about 3 bytes: not shown]",
                vec![],
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": { "uri": "x://b", "mimeType": "image/png", "blob": "iVBORw0K" } }] }),
                "[resource x://b, image/png: shown as an image]",
                vec!["data:image/png;base64,iVBORw0K"],
            ),
            (
                json!({ "content": [{ "type": "resource_link", "uri": "x://c", "name": "c", "description": "The\nthird" }] }),
                "[link to x://c (c), The third]",
                vec![],
            ),
            (json!({ "content": [], "structuredContent": { "b": 1, "a": [2] } }), r#"{"a":[2],"b":1}"#, vec![]),
            (json!({ "content": [{ "type": "text", "text": "a" }], "structuredContent": { "a": 1 } }), "a", vec![]),
            (json!({ "content": [] }), "[no content]", vec![]),
        ] {
            let expected = Output {
                text: text.to_owned(),
                images: images.into_iter().map(str::to_owned).collect(),
                is_error: false,
            };
            assert_eq!(of(result.clone()), expected, "{result}");
        }
    }

    #[test]
    fn a_failure_stays_one() {
        let failed = json!({ "content": [{ "type": "text", "text": "no such file" }], "isError": true });
        assert_eq!(of(failed), Output::error("no such file"));
        assert_eq!(
            of(json!({ "content": [], "isError": true })),
            Output::error("The tool failed and did not say why.")
        );
    }

    #[test]
    fn images_are_bounded() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0K" });
        let many = of(json!({ "content": vec![image; 18] }));
        assert_eq!(many.images.len(), 16);
        assert_eq!(many.text.lines().filter(|line| line.ends_with("since a result may have 16 images]")).count(), 2);
        let large = "A".repeat(IMAGE_BYTES_MAX + 4);
        let large = of(json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": large }] }));
        assert!(large.images.is_empty() && large.text.contains("more than 8388608 bytes"), "{}", large.text);
    }
}
