//! The form of the answer that a request asks for: which tools may be called, and the format of the text.

use super::options::Api;
use crate::{
    core::{model::Purpose, need::Need},
    provider::adapt::Plan,
};
use reseed_protocol::context::{AnswerFormat, ToolChoice};
use serde::Serialize;
use serde_json::Value;

/// A `tool_choice` as it is sent. The two dialects name a single tool differently.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ToolChoiceForm<'a> {
    Word(&'static str),
    OfResponses { r#type: &'static str, name: &'a str },
    OfChat { r#type: &'static str, function: Name<'a> },
}

#[derive(Debug, Serialize)]
pub(super) struct Name<'a> {
    name: &'a str,
}

/// Returns the `tool_choice` of a request. A summary's request carries the conversation's own tools, so that it hits
/// the provider's cache, but the model must write the summary instead of calling them.
pub(super) fn tool_choice<'a>(plan: &Plan<'a>, api: Api) -> Option<ToolChoiceForm<'a>> {
    if plan.request.purpose == Purpose::Summary {
        let is_forbidden = plan.has_tools() && !plan.does(Need::NoToolChoice);
        return is_forbidden.then_some(ToolChoiceForm::Word("none"));
    }
    Some(match plan.choice()? {
        ToolChoice::Auto => ToolChoiceForm::Word("auto"),
        ToolChoice::None => ToolChoiceForm::Word("none"),
        ToolChoice::Required => ToolChoiceForm::Word("required"),
        ToolChoice::Tool { name } => match api {
            Api::Responses => ToolChoiceForm::OfResponses { r#type: "function", name },
            Api::Chat => ToolChoiceForm::OfChat { r#type: "function", function: Name { name } },
        },
    })
}

/// The format of an answer's text.
#[derive(Debug, Serialize)]
pub(super) struct SchemaForm<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

impl<'a> SchemaForm<'a> {
    /// Returns the schema of a format; `None` if any JSON object will do.
    pub(super) fn of(format: &'a AnswerFormat) -> Option<Self> {
        match format {
            AnswerFormat::JsonObject => None,
            AnswerFormat::JsonSchema { name, description, schema, strict } => {
                Some(Self { name, description: description.as_deref(), schema, strict: *strict })
            }
        }
    }
}
