//! CPU profiles and heap summaries of plugins over HTTP.

use std::time::Duration;

use super::Refused;
use super::profile_shapes::{CpuProfile, LONGEST, PluginMemory, PluginProfile, ProfilePlugin, SECONDS};
use super::rows::Ask;
use crate::exit::Exit;

/// How long a summary may take. A plugin between two instructions answers; one in a native function does not.
const SUMMARY: Duration = Duration::from_secs(30);

/// Records a profile. It is discarded if the caller goes away.
pub(super) async fn profile(ask: Ask, asked: ProfilePlugin) -> Result<PluginProfile, Refused> {
    let seconds = asked.seconds.unwrap_or(SECONDS);
    if !(1..=LONGEST).contains(&seconds) {
        return Err(Exit::usage(format!("seconds must be between 1 and {LONGEST}")).into());
    }
    let (plugin, engine) = ask.control.engine_of(&asked.name)?;
    let Some(profiling) = engine.profiler().start() else {
        let why = format!("a profile of plugin {plugin} is being recorded; try again when it has ended");
        return Err(Exit::machine(why).into());
    };
    // The plugin can end in the meantime.
    drop(engine);
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let profile = profiling.end();
    Ok(PluginProfile { plugin, full: profile.is_full, profile: CpuProfile::of(profile) })
}

pub(super) async fn memory(ask: Ask, name: String) -> Result<PluginMemory, Refused> {
    let (plugin, engine) = ask.control.engine_of(&name)?;
    let summary = tokio::time::timeout(SUMMARY, engine.heap()).await.map_err(|_| {
        let limit = SUMMARY.as_secs();
        Exit::machine(format!(
            "plugin {plugin} does not answer: a native function runs for more than {limit} seconds"
        ))
    })?;
    let summary = summary.map_err(|thrown| Exit::machine(thrown.message))?;
    Ok(PluginMemory::of(&plugin, summary))
}
