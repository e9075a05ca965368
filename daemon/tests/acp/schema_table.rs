//! The list of all methods and variants, derived from the protocol's schema, and the test that drives each variant: a new version
//! of the schema fails here until what it adds has a test. The methods are driven by [`crate::frames`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_client_protocol::v1::schema as acp;
use schemars::SchemaGenerator;
use serde_json::Value;

use crate::schema::variants;

/// Every type with variants and the test whose rows are its variants.
const VARIANTS: [(&str, &str); 32] = [
    ("AuthMethod", "schema.rs::every_kind_of_option_is_a_setting_and_every_way_to_sign_in_is_named"),
    ("AvailableCommandInput", "variants.rs::every_command_is_offered_whatever_its_input"),
    ("CompactionStatus", "schema.rs::every_plan_entry_notice_and_compaction_is_shown"),
    ("ContentBlock", "schema.rs::every_content_block_is_shown"),
    (
        "CreateElicitationRequest",
        "variants.rs::a_question_is_about_a_session_or_about_the_request_that_opens_it",
    ),
    ("CreateElicitationResponse", "schema.rs::every_property_mode_and_answer_of_a_question_is_used"),
    ("ElicitationContentValue", "variants.rs::every_form_is_a_question_and_every_value_an_answer"),
    ("ElicitationFormMode", "variants.rs::a_question_is_about_a_session_or_about_the_request_that_opens_it"),
    ("ElicitationPropertySchema", "schema.rs::every_property_mode_and_answer_of_a_question_is_used"),
    ("ElicitationSchemaType", "variants.rs::every_form_is_a_question_and_every_value_an_answer"),
    ("ElicitationUrlMode", "variants.rs::a_question_is_about_a_session_or_about_the_request_that_opens_it"),
    (
        "EmbeddedResourceResource",
        "variants.rs::every_content_of_a_resource_is_shown_and_sent_whoever_it_is_for",
    ),
    ("ErrorCode", "variants.rs::every_error_ends_the_turn_with_its_words"),
    ("McpServer", "variants.rs::every_kind_of_mcp_server_is_offered_or_has_a_substitute"),
    ("MultiSelectItems", "variants.rs::every_form_is_a_question_and_every_value_an_answer"),
    ("NoticeSeverity", "schema.rs::every_plan_entry_notice_and_compaction_is_shown"),
    ("PermissionOptionKind", "schema.rs::every_kind_of_permission_and_outcome_is_used"),
    ("PlanEntryPriority", "schema.rs::every_plan_entry_notice_and_compaction_is_shown"),
    ("PlanEntryStatus", "schema.rs::every_plan_entry_notice_and_compaction_is_shown"),
    ("RequestId", "variants.rs::every_kind_of_request_id_is_answered_and_can_be_taken_back"),
    ("RequestPermissionOutcome", "schema.rs::every_kind_of_permission_and_outcome_is_used"),
    ("Role", "variants.rs::every_content_of_a_resource_is_shown_and_sent_whoever_it_is_for"),
    ("SessionConfigOption", "schema.rs::every_kind_of_option_is_a_setting_and_every_way_to_sign_in_is_named"),
    (
        "SessionConfigOptionCategory",
        "variants.rs::every_category_of_an_option_and_every_list_of_values_is_a_setting",
    ),
    (
        "SessionConfigSelectOptions",
        "variants.rs::every_category_of_an_option_and_every_list_of_values_is_a_setting",
    ),
    ("SessionUpdate", "variants.rs::every_update_is_shown"),
    ("SetSessionConfigOptionRequest", "variants.rs::every_kind_of_value_is_sent"),
    ("StopReason", "schema.rs::every_stop_reason_ends_the_turn"),
    ("StringFormat", "variants.rs::every_form_is_a_question_and_every_value_an_answer"),
    ("ToolCallContent", "schema.rs::every_content_of_a_tool_call_is_shown"),
    ("ToolCallStatus", "schema.rs::every_kind_and_status_of_a_tool_call_is_shown"),
    ("ToolKind", "schema.rs::every_kind_and_status_of_a_tool_call_is_shown"),
];

/// Every type of the schema, by name.
fn types() -> BTreeMap<String, Value> {
    let mut generator = SchemaGenerator::default();
    generator.subschema_for::<acp::ClientRequest>();
    generator.subschema_for::<acp::AgentResponse>();
    generator.subschema_for::<acp::ClientNotification>();
    generator.subschema_for::<acp::AgentRequest>();
    generator.subschema_for::<acp::ClientResponse>();
    generator.subschema_for::<acp::AgentNotification>();
    generator.subschema_for::<acp::ProtocolLevelNotification>();
    generator.subschema_for::<acp::Error>();
    generator.take_definitions(true).into_iter().collect()
}

/// The text of a test: `<file>::<name>`.
#[track_caller]
fn text_of(test: &str) -> String {
    let (file, name) = test.split_once("::").unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acp").join(file);
    let source = std::fs::read_to_string(&file).unwrap();
    let (_, test) =
        source.split_once(&format!("fn {name}()")).unwrap_or_else(|| panic!("there is no {test}"));
    test.split_once("\n}\n").unwrap().0.to_owned()
}

#[test]
fn every_variant_of_the_schema_has_a_test() {
    let with_variants = types().into_iter().filter(|(_, schema)| !variants(schema).is_empty());
    let expected: BTreeSet<String> = with_variants.map(|(name, _)| name).collect();
    assert_eq!(VARIANTS.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), expected);
    for (name, test) in VARIANTS {
        // Its rows are compared with the variants there.
        assert!(text_of(test).contains(&format!("covers::<acp::{name}>(")), "{test} does not cover {name}");
    }
}

/// Every method of the schema, of both sides.
pub fn methods() -> BTreeSet<String> {
    let types = types();
    types.values().filter_map(|schema| schema["x-method"].as_str()).map(str::to_owned).collect()
}
