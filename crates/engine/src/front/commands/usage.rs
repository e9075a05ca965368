//! The host's own commands about what work cost.

use std::sync::Arc;

use ostler_protocol::commands::Command;
use ostler_protocol::grants::Grant;
use ostler_protocol::{RpcError, Value};

use crate::front::connection::Connection;
use crate::users::principal::Principal;

impl Connection {
    /// Serves an `x-ostler/usage/…` command, as the scheme is served: somebody reads their own pools unasked.
    pub(super) async fn handle_usage(
        self: &Arc<Self>,
        command: Command,
        principal: Principal,
    ) -> Result<Value, RpcError> {
        let front = self.front();
        front.usage.use_kept()?;
        let reader = principal.reader().filter(|_| front.access.gate.guarded);
        if principal == Principal::Anyone {
            front.access.gate.require(&principal, &Grant::of("usage", "get"))?;
        }
        match command {
            Command::UsageTotals(asked) => front.usage.usage_totals(asked, reader.as_ref()).await,
            Command::UsageRecords(asked) => front.usage.usage_records(asked, reader.as_ref()).await,
            Command::UsageGroups(asked) => front.usage.usage_groups(asked, reader.as_ref()).await,
            other => Err(RpcError::method_not_found(format!("{} is not about use", other.name()))),
        }
    }
}
