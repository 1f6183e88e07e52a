//! The tools as the model sees them, and their arguments.

use crate::{
    folders::Session,
    patch,
    shell::{Ended, Shell},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::time::Duration;

/// Returns both tools in MCP's form.
pub(crate) fn definitions(shell: &Shell) -> Value {
    let mut description = format!(
        "Runs a command in this session's folder and returns its output and exit code. `command` is the program \
         and its arguments; there is no shell unless you name one, such as [\"bash\", \"-c\", \"ls | wc -l\"]. The \
         files of the folder stay for later calls; processes do not: background processes end with the call. The \
         time limit is {} seconds. Standard input is empty. [\"apply_patch\", PATCH] changes files as the tool \
         `apply_patch` does.",
        shell.time_max().as_secs()
    );
    if shell.is_confined() {
        description.push_str(
            " The command can read and write only this folder (HOME; temporary files in TMPDIR), can read \
             installed programs, and has no network. `chmod` has no effect: run scripts by their interpreter.",
        );
    }
    let of_shell = json!({
        "command": {
            "type": "array",
            "items": { "type": "string" },
            "minItems": 1,
            "description": "The program and its arguments.",
        },
        "workdir": {
            "type": "string",
            "description": "The directory to start in, relative to the session's folder.",
        },
        "timeout": {
            "type": "integer",
            "minimum": 1,
            "description": "A shorter time limit, in milliseconds.",
        },
    });
    let of_patch = json!({ "input": { "type": "string", "description": "The whole patch." } });
    json!([
        tool("shell", &description, "command", &of_shell, !shell.is_confined()),
        tool("apply_patch", patch::DESCRIPTION, "input", &of_patch, false),
    ])
}

/// Returns a tool. Two calls of one answer do not run in parallel, because each may need the files of the one before
/// it.
fn tool(name: &str, description: &str, required: &str, properties: &Value, is_open: bool) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": [required],
            "additionalProperties": false,
        },
        "annotations": {
            "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": is_open,
        },
        "_meta": { "reseed/sequential": true },
    })
}

/// Runs a call of a tool.
pub(crate) async fn call(shell: &Shell, session: &Session, tool: &str, arguments: &Value) -> Ended {
    match tool {
        "shell" => match Asked::deserialize(arguments) {
            Ok(Asked { command, workdir, .. }) if command.len() == 2 && command[0] == "apply_patch" => {
                shell.patch(session, command[1].clone(), workdir).await
            }
            Ok(asked) => shell.run(session, asked).await,
            Err(error) => Ended::error(format!("the arguments do not fit: {error}")),
        },
        "apply_patch" => match arguments["input"].as_str() {
            Some(text) => shell.patch(session, text.to_owned(), None).await,
            None => Ended::error("the arguments do not fit: `input` must be a text"),
        },
        _ => Ended::error("there is no such tool"),
    }
}

/// The arguments of `shell`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    pub(crate) command: Vec<String>,
    pub(crate) workdir: Option<String>,
    #[serde(default, deserialize_with = "millis")]
    pub(crate) timeout: Option<Duration>,
}

fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
}
