//! What users edit, in the database, for commands and a watched folder: automations, policies and some collections of
//! records.

use jiff::Timestamp;
use ostler_contract::policy::check_policy;
use ostler_contract::protocol::wire::state::AutomationDefinition;
use ostler_contract::stores::automations::{iso, message, refuse_id};
use ostler_contract::stores::edits::{EditedItem, EditedKey, automation_value};
use ostler_contract::{JsonObject, Thrown, Value};

use crate::database::{Param, decode, encode};
use crate::direct::Direct;
use crate::{automations, records};

impl Direct {
    /// Returns the automations, the policies, and the records of these collections.
    ///
    /// # Errors
    /// The database fails, or an item cannot be read.
    pub async fn edited_items(&self, collections: &[String]) -> Result<Vec<EditedItem>, Thrown> {
        let mut items = Vec::new();
        let sql = "SELECT id, definition, owner FROM automations ORDER BY id";
        for row in self.rows(sql, vec![]).await? {
            let (id, stored, owner): (String, String, Option<String>) = (row.get(0), row.get(1), row.get(2));
            let definition: AutomationDefinition = decode(&stored, "automation", &id)?;
            let value = automation_value(&definition, owner.as_deref());
            items.push(EditedItem { key: EditedKey::Automation(id), value, stored });
        }
        for row in self.rows("SELECT id, policy FROM policies ORDER BY number", vec![]).await? {
            let (id, stored): (String, String) = (row.get(0), row.get(1));
            let value = decode(&stored, "policy", &id)?;
            items.push(EditedItem { key: EditedKey::Policy(id), value, stored });
        }
        let sql =
            "SELECT id, record, collection FROM records WHERE collection = ANY ($1) ORDER BY collection, id";
        for row in self.rows(sql, vec![Box::new(collections.to_vec())]).await? {
            let (id, stored, collection): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            let value = Value::Object(records::read(&collection, &row)?);
            items.push(EditedItem { key: EditedKey::Record(collection, id), value, stored });
        }
        Ok(items)
    }

    /// Replaces an item if the database still has `before`: its text, or nothing. Without `after`, deletes it. Returns `false`
    /// and changes nothing if the item has changed.
    ///
    /// # Errors
    /// The value is invalid, or the database fails.
    pub async fn replace_item(
        &self,
        key: &EditedKey,
        before: Option<&str>,
        after: Option<&Value>,
    ) -> Result<bool, Thrown> {
        let Some(after) = after else {
            let before: Param = Box::new(before.unwrap_or_default().to_owned());
            let (sql, params): (_, Vec<Param>) = match key {
                EditedKey::Automation(id) => {
                    (automations::REMOVE_UNCHANGED, vec![Box::new(id.clone()), before])
                }
                EditedKey::Policy(id) => (
                    "DELETE FROM policies WHERE id = $1 AND policy = $2 RETURNING true",
                    vec![Box::new(id.clone()), before],
                ),
                EditedKey::Record(collection, id) => (
                    "DELETE FROM records WHERE collection = $1 AND id = $2 AND record = $3 RETURNING true",
                    vec![Box::new(collection.clone()), Box::new(id.clone()), before],
                ),
            };
            return Ok(!self.rows(sql, params).await?.is_empty());
        };
        match key {
            EditedKey::Automation(id) => self.replace_automation(id, before, after).await,
            EditedKey::Policy(id) => {
                let row = check_policy(after)?;
                let mut params: Vec<Param> = vec![Box::new(id.clone()), Box::new(encode(&row)?)];
                let sql = match before {
                    None => {
                        "INSERT INTO policies (id, policy) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
                    }
                    Some(before) => {
                        params.push(Box::new(before.to_owned()));
                        "UPDATE policies SET policy = $2 WHERE id = $1 AND policy = $3 RETURNING true"
                    }
                };
                Ok(!self.rows(sql, params).await?.is_empty())
            }
            EditedKey::Record(collection, _) => {
                let record: JsonObject = after.as_object().cloned().unwrap_or_default();
                let mut params = records::prepare(collection, None, record)?.params;
                let sql = match before {
                    None => {
                        "INSERT INTO records (collection, id, record, digest, fields) VALUES ($1, $2, $3, $4, $5)
                         ON CONFLICT DO NOTHING RETURNING true"
                    }
                    Some(before) => {
                        params.push(Box::new(before.to_owned()));
                        "UPDATE records SET record = $3, digest = $4, fields = $5
                         WHERE collection = $1 AND id = $2 AND record = $6 RETURNING true"
                    }
                };
                Ok(!self.rows(sql, params).await?.is_empty())
            }
        }
    }

    async fn replace_automation(
        &self,
        id: &str,
        before: Option<&str>,
        after: &Value,
    ) -> Result<bool, Thrown> {
        refuse_id(id)?;
        let definition: AutomationDefinition = serde_json::from_value(after["definition"].clone())
            .map_err(|error| Thrown::new(format_args!("automation {id}: {error}")))?;
        let definition = AutomationDefinition { message: message(definition.message), ..definition };
        automations::checked(id, &definition)?;
        let owner = after["owner"].as_str().map(str::to_owned);
        let mut params: Vec<Param> = vec![
            Box::new(id.to_owned()),
            Box::new(encode(&definition)?),
            Box::new(owner),
            Box::new(iso(Timestamp::now())),
        ];
        let sql = match before {
            None => automations::CREATE,
            Some(before) => {
                params.push(Box::new(before.to_owned()));
                "UPDATE automations SET definition = $2, owner = $3, modified_at = $4 WHERE id = $1 AND definition = $5
                 RETURNING id"
            }
        };
        Ok(!self.rows(sql, params).await?.is_empty())
    }
}
