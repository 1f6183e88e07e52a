//! The settings that a request wants.

use reseed_client::fold::Snapshot;
use reseed_protocol::{
    command::Command,
    compaction::SetContextStrategy,
    session::{SetInstructions, SetModel, SetOptions},
};

/// The settings that a request wants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// The model; absent to keep the session's.
    pub model: Option<String>,
    /// The reasoning effort. If it is absent and a model is wanted, it is the provider's default.
    pub reasoning_effort: Option<String>,
    /// The system prompt; absent to keep the session's, `Some(None)` for the deployment's.
    pub instructions: Option<Option<String>>,
    /// Sampling, limits and form of the answer; absent to keep the session's.
    pub options: Option<SetOptions>,
    /// The context strategy; absent to keep the session's.
    pub strategy: Option<SetContextStrategy>,
}

/// Returns the commands that make the settings what is wanted.
pub(super) fn differences(snapshot: &Snapshot, wanted: Wanted) -> Vec<Command> {
    let Wanted { model, reasoning_effort, instructions, options, strategy } = wanted;
    let settings = &snapshot.settings;
    let mut commands = Vec::new();
    if model.is_some() || reasoning_effort.is_some() {
        let model = model.unwrap_or_else(|| snapshot.model.clone());
        if model != snapshot.model || reasoning_effort != settings.reasoning_effort {
            commands.push(Command::SetModel(SetModel { model, reasoning_effort }));
        }
    }
    if let Some(instructions) = instructions
        && instructions != settings.instructions
    {
        commands.push(Command::SetInstructions(SetInstructions { instructions }));
    }
    if let Some(options) = options {
        let now = SetOptions {
            temperature: settings.temperature,
            top_p: settings.top_p,
            max_output_tokens: settings.max_output_tokens,
            answer: settings.answer.clone(),
        };
        if options != now {
            commands.push(Command::SetOptions(options));
        }
    }
    if let Some(strategy) = strategy
        && (strategy.strategy != snapshot.strategy || strategy.settings != settings.strategy_settings)
    {
        commands.push(Command::SetContextStrategy(strategy));
    }
    commands
}
