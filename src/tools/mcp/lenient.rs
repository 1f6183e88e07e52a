//! Repairs messages of servers before they are parsed, so that one malformed part does not affect the others.
//!
//! rmcp parses a message as a whole or not at all. It rejects a whole list for one tool with a schema of `null`, and a
//! whole result for one part of an unknown type. So each tool and each part is parsed separately here. A part that is
//! not valid MCP becomes a note for the model, and everything else stays unchanged.

use rmcp::model::{ContentBlock, JsonRpcMessage, ServerJsonRpcMessage, ServerResult, Tool};
use serde_json::{Map, Value, json};

/// Maximum characters of an unknown type in a note.
const TYPE_CHARS_MAX: usize = 64;

/// Returns a server's output line as messages, each on its own line. Returns nothing if it is not a message, such as a
/// log line on standard output.
pub(super) fn lines(line: &[u8]) -> Vec<u8> {
    let messages = match serde_json::from_slice(line) {
        // The revision of March 2025 has batches.
        Ok(Value::Array(messages)) => messages,
        Ok(message) => vec![message],
        Err(_) => return Vec::new(),
    };
    let mut written = Vec::with_capacity(line.len() + 1);
    for message in messages.into_iter().filter_map(mended) {
        // Writing a value to memory cannot fail.
        if serde_json::to_writer(&mut written, &message).is_ok() {
            written.push(b'\n');
        }
    }
    written
}

/// Repairs a parsed message whose result is not valid MCP.
pub(super) fn message(message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    let is_odd =
        matches!(&message, JsonRpcMessage::Response(answer) if matches!(answer.result, ServerResult::CustomResult(_)));
    if !is_odd {
        return message;
    }
    let again = serde_json::to_value(&message).ok().and_then(mended);
    again.and_then(|mended| serde_json::from_value(mended).ok()).unwrap_or(message)
}

/// Repairs a message; `None` if it is not one.
fn mended(message: Value) -> Option<Value> {
    let Value::Object(mut fields) = message else { return None };
    let has = |fields: &Map<String, Value>, name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    let is_answer = !has(&fields, "method") && (fields.contains_key("result") || fields.contains_key("error"));
    if !is_answer && !has(&fields, "method") {
        return None;
    }
    fields.insert("jsonrpc".to_owned(), "2.0".into());
    if is_answer {
        let is_error = has(&fields, "error");
        mend_answer(&mut fields, is_error);
    }
    Some(fields.into())
}

fn mend_answer(fields: &mut Map<String, Value>, is_error: bool) {
    // This client's ids are numbers.
    if let Some(Value::String(id)) = fields.get("id")
        && let Ok(id) = id.parse::<i64>()
    {
        fields.insert("id".to_owned(), id.into());
    }
    fields.remove(if is_error { "result" } else { "error" });
    if let Some(error) = fields.get_mut("error") {
        let code = error["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(-32603);
        let said = if error.is_object() { &error["message"] } else { &*error };
        let said = match said {
            Value::String(said) => said.clone(),
            Value::Null => "no reason given".to_owned(),
            other => other.to_string(),
        };
        let data = error.get("data").cloned();
        *error = json!({ "code": code, "message": said });
        if let Some(data) = data {
            error["data"] = data;
        }
    }
    let Some(result) = fields.get_mut("result") else { return };
    let Value::Object(result) = result else {
        *result = json!({ "content": contents(result.take()) });
        return;
    };
    if result.contains_key("protocolVersion") {
        let software = result.entry("serverInfo").or_insert(Value::Null);
        if !(software["name"].is_string() && software["version"].is_string()) {
            *software = json!({ "name": text(&software["name"]), "version": text(&software["version"]) });
        }
        if !result.get("capabilities").is_some_and(Value::is_object) {
            result.insert("capabilities".to_owned(), json!({ "tools": {} }));
        }
    }
    if let Some(tools) = result.get_mut("tools") {
        *tools = self::tools(tools.take());
        // Some servers mark the last page with this value.
        if result.get("nextCursor").and_then(Value::as_str).is_none_or(str::is_empty) {
            result.remove("nextCursor");
        }
    }
    if let Some(content) = result.get_mut("content") {
        *content = contents(content.take());
    } else if let Some(older) = result.remove("toolResult") {
        // The first revision has results in this form.
        result.insert("content".to_owned(), contents(older));
    }
    if let Some(is_error) = result.get_mut("isError").filter(|is_error| !is_error.is_boolean()) {
        *is_error = (*is_error == "true" || *is_error == 1).into();
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a list of tools that can all be parsed. An item without a name is dropped.
fn tools(list: Value) -> Value {
    let Value::Array(list) = list else { return json!([]) };
    list.into_iter().filter(|tool| tool["name"].is_string()).map(tool).collect()
}

fn tool(mut tool: Value) -> Value {
    // Without a valid schema, the arguments are not described.
    if !tool["inputSchema"].is_object() {
        tool["inputSchema"] = json!({});
    }
    if serde_json::from_value::<Tool>(tool.clone()).is_ok() {
        return tool;
    }
    let mut plain = json!({ "name": tool["name"], "inputSchema": tool["inputSchema"] });
    for field in ["description", "title", "annotations"] {
        let mut with = plain.clone();
        with[field] = tool[field].take();
        if !with[field].is_null() && serde_json::from_value::<Tool>(with.clone()).is_ok() {
            plain = with;
        }
    }
    plain
}

/// Returns content whose parts can all be parsed.
fn contents(content: Value) -> Value {
    match content {
        Value::Null => json!([]),
        Value::Array(parts) => parts.into_iter().filter(|part| !part.is_null()).map(part).collect(),
        one => json!([part(one)]),
    }
}

fn part(part: Value) -> Value {
    if serde_json::from_value::<ContentBlock>(part.clone()).is_ok() {
        return part;
    }
    let of_text = |text: String| json!({ "type": "text", "text": text });
    let resource = &part["resource"];
    match part["type"].as_str() {
        // Other mistakes in a text do not matter.
        _ if part["text"].is_string() => of_text(text(&part["text"]).to_owned()),
        _ if resource["text"].is_string() => of_text(text(&resource["text"]).to_owned()),
        Some("resource_link") if part["uri"].is_string() => {
            json!({ "type": "resource_link", "uri": part["uri"], "name": part["uri"] })
        }
        Some(kind) => {
            let kind: String = kind.chars().filter(|c| !c.is_control()).take(TYPE_CHARS_MAX).collect();
            of_text(format!("[content of the type `{kind}`: not shown]"))
        }
        None if part.is_object() => of_text("[content without a type: not shown]".to_owned()),
        None => of_text(part.as_str().map_or_else(|| part.to_string(), str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::{lines, message};
    use rmcp::model::ServerJsonRpcMessage;
    use serde_json::{Value, json};

    /// Repairs an answer with this result.
    fn result(result: Value) -> Value {
        let line = json!({ "id": 1, "result": result }).to_string();
        let mended: Value = serde_json::from_slice(&lines(line.as_bytes())).unwrap();
        mended["result"].clone()
    }

    #[test]
    fn noise_is_no_message_and_a_batch_is_several() {
        for (line, count) in [
            ("Server listening on stdio", 0),
            ("", 0),
            ("42", 0),
            (r#"{"level":"info","msg":"ready"}"#, 0),
            (r#"{"half": "#, 0),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r", 1),
            (r#"[{"id":1,"result":{}},{"method":"notifications/x"},7]"#, 2),
        ] {
            let written = lines(line.as_bytes());
            assert_eq!(written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), count, "{line}");
        }
    }

    #[test]
    fn answers_get_the_form_of_json_rpc() {
        for (answer, expected) in [
            (json!({ "id": "7", "result": {} }), json!({ "jsonrpc": "2.0", "id": 7, "result": {} })),
            (json!({ "id": 7, "result": {}, "error": null }), json!({ "jsonrpc": "2.0", "id": 7, "result": {} })),
            (
                json!({ "id": 7, "result": null, "error": "no" }),
                json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": -32603, "message": "no" } }),
            ),
            (
                json!({ "id": 7, "error": { "code": "E1", "message": { "a": 1 } } }),
                json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": -32603, "message": "{\"a\":1}" } }),
            ),
        ] {
            let mended: Value = serde_json::from_slice(&lines(answer.to_string().as_bytes())).unwrap();
            assert_eq!(mended, expected);
        }
        let up = result(json!({ "protocolVersion": "2024-11-05", "serverInfo": { "name": "s" } }));
        assert_eq!(up["serverInfo"], json!({ "name": "s", "version": "" }));
        assert_eq!(up["capabilities"], json!({ "tools": {} }));
    }

    #[test]
    fn one_tool_does_not_spoil_the_others() {
        let sound = json!({ "name": "a", "description": "A.", "inputSchema": { "type": "object" } });
        for (odd, expected) in [
            (json!({ "name": "b", "inputSchema": null }), Some(json!({ "name": "b", "inputSchema": {} }))),
            (json!({ "name": "b", "inputSchema": "none" }), Some(json!({ "name": "b", "inputSchema": {} }))),
            (json!({ "name": "b" }), Some(json!({ "name": "b", "inputSchema": {} }))),
            (
                json!({ "name": "b", "description": 7, "title": "B", "annotations": [], "inputSchema": {} }),
                Some(json!({ "name": "b", "title": "B", "inputSchema": {} })),
            ),
            (
                json!({ "name": "b", "outputSchema": "text", "inputSchema": {}, "annotations": { "readOnlyHint": true } }),
                Some(json!({ "name": "b", "inputSchema": {}, "annotations": { "readOnlyHint": true } })),
            ),
            (json!({ "name": 5, "inputSchema": {} }), None),
            (json!("b"), None),
        ] {
            let listed = result(json!({ "tools": [odd.clone(), sound], "nextCursor": "" }));
            let expected: Vec<Value> = expected.into_iter().chain([sound.clone()]).collect();
            assert_eq!(listed, json!({ "tools": expected }), "{odd}");
        }
        assert_eq!(result(json!({ "tools": [], "nextCursor": "2" })), json!({ "tools": [], "nextCursor": "2" }));
    }

    #[test]
    fn one_part_does_not_spoil_the_others() {
        let calm = json!({ "type": "text", "text": "calm" });
        let note = |text: &str| json!([{ "type": "text", "text": text }, calm]);
        for (odd, expected) in [
            (json!({ "type": "video", "data": "x" }), note("[content of the type `video`: not shown]")),
            (json!({ "type": "image", "data": "x" }), note("[content of the type `image`: not shown]")),
            (json!({ "kind": "chart" }), note("[content without a type: not shown]")),
            (json!({ "type": "markdown", "text": "# Calm" }), note("# Calm")),
            (json!({ "type": "text", "text": "a", "annotations": "none" }), note("a")),
            (json!({ "type": "resource", "resource": { "text": "inside" } }), note("inside")),
            (json!("said"), note("said")),
            (json!(null), json!([calm])),
            (
                json!({ "type": "resource_link", "uri": "x://c" }),
                json!([{ "type": "resource_link", "uri": "x://c", "name": "x://c" }, calm]),
            ),
        ] {
            assert_eq!(result(json!({ "content": [odd, calm] }))["content"], expected, "{odd}");
        }
        let told = |content: Value| result(content)["content"].clone();
        assert_eq!(told(json!({ "content": "calm" })), json!([calm]));
        assert_eq!(told(json!({ "content": calm })), json!([calm]));
        assert_eq!(told(json!({ "content": null })), json!([]));
        assert_eq!(told(json!({ "toolResult": "calm" })), json!([calm]));
        assert_eq!(told(json!("calm")), json!([calm]));
        let failed = result(json!({ "content": [calm], "isError": "true" }));
        assert_eq!(failed["isError"], true);
    }

    #[test]
    fn a_message_that_was_read_is_mended_too() {
        let odd = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [{ "name": "a", "inputSchema": null }] } });
        let read: ServerJsonRpcMessage = serde_json::from_value(odd).unwrap();
        let mended = serde_json::to_value(message(read)).unwrap();
        assert_eq!(mended["result"]["tools"][0]["inputSchema"], json!({}), "{mended}");
    }
}
