//! A session's settings before there is a session.

use ostler_protocol::RpcError;
use ostler_protocol::wire::commands as c;

use crate::host::Host;
use crate::refusals::no_provider;
use crate::sessions::settings;

pub(super) async fn resolve_config(
    host: &Host,
    params: c::ResolveSessionConfigParams,
) -> Result<c::ResolveSessionConfigResult, RpcError> {
    let agent = match &params.provider {
        Some(provider) => host.listed_agent(provider),
        None => host.first_agent(),
    };
    let agent = agent.ok_or_else(|| no_provider(params.provider.as_deref().unwrap_or("default")))?;
    let config = settings(&agent, &params.config.unwrap_or_default()).await.map_err(|why| why.into_rpc())?;
    Ok(c::ResolveSessionConfigResult { schema: config.schema, values: config.values })
}
