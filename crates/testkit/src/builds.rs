//! A plugin with a trigger type, for tests of automations.

use ostler_contract::Plugin;
use ostler_contract::points::{TriggerEvent, TriggerType};

/// A plugin, by its id `builds`, whose event `done` of the type `build` tests fire.
pub fn builds() -> Plugin {
    Plugin::new("@test/builds", |host, _| Box::pin(async move { host.register_trigger_type(build()) }))
}

/// The trigger type.
pub fn build() -> TriggerType {
    TriggerType {
        r#type: "build".into(),
        title: "A build".into(),
        events: vec![TriggerEvent { id: "done".into(), title: "Done".into(), description: None }],
        ..TriggerType::default()
    }
}
