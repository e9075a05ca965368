//! The bundled copy of the registry.

/// Each `agent.json`.
pub const AGENTS: &[&str] = &[
    include_str!("../../presets/claude-acp/agent.json"),
    include_str!("../../presets/cline/agent.json"),
    include_str!("../../presets/codex-acp/agent.json"),
    include_str!("../../presets/deepagents/agent.json"),
    include_str!("../../presets/fast-agent/agent.json"),
    include_str!("../../presets/gemini/agent.json"),
    include_str!("../../presets/github-copilot-cli/agent.json"),
    include_str!("../../presets/hermes/agent.json"),
    include_str!("../../presets/kilo/agent.json"),
    include_str!("../../presets/kimi/agent.json"),
    include_str!("../../presets/mistral-vibe/agent.json"),
    include_str!("../../presets/opencode/agent.json"),
    include_str!("../../presets/pi-acp/agent.json"),
    include_str!("../../presets/qwen-code/agent.json"),
];
