//! The vault: secrets that the host encrypts before the database sees them, with AES-256-GCM.

use std::sync::Arc;

use ostler_contract::live::{Pending, ready};
use ostler_contract::points::Vault as Point;
use ostler_contract::{Secret, Thrown, VaultName};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac};

use crate::database::{Database, Param, Write};

/// The bytes of a hash of the key that are stored, to recognize it.
const KEY_ID: usize = 8;

/// Stores an encrypted value.
pub const SET: &str = "INSERT INTO vault (name, key_id, value) VALUES ($1, $2, $3)
     ON CONFLICT (name) DO UPDATE SET key_id = excluded.key_id, value = excluded.value";

/// Secrets in the database.
pub struct Vault {
    database: Arc<Database>,
    cipher: Cipher,
}

/// Encrypts values under their names.
pub struct Cipher {
    key: LessSafeKey,
    id: Vec<u8>,
    names: hmac::Key,
    random: SystemRandom,
}

impl Cipher {
    /// Creates a cipher.
    ///
    /// # Errors
    /// The key is not one of AES-256.
    pub fn new(key: &Secret<[u8; 32]>) -> Result<Self, Thrown> {
        let failed = |_| Thrown::new("the key of the vault cannot be used");
        let unbound = UnboundKey::new(&AES_256_GCM, key.reveal()).map_err(failed)?;
        let mut named = b"ostler vault key\0".to_vec();
        named.extend(key.reveal());
        let id = digest::digest(&digest::SHA256, &named).as_ref()[..KEY_ID].to_vec();
        let names = hmac::Key::new(hmac::HMAC_SHA256, key.reveal());
        Ok(Self { key: LessSafeKey::new(unbound), id, names, random: SystemRandom::new() })
    }

    /// Returns what identifies another secret to hosts with the same key, and tells nothing to anyone else.
    pub fn identify(&self, secret: &str) -> Vec<u8> {
        hmac::sign(&self.names, secret.as_bytes()).as_ref()[..KEY_ID].to_vec()
    }

    /// Returns what identifies the key: the beginning of a hash of it.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Encrypts a value: a random nonce, then the text and its tag, bound to the name.
    pub fn seal(&self, name: &str, value: &str) -> Result<Vec<u8>, Thrown> {
        let failed = |_| Thrown::new("the secret cannot be encrypted");
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(failed)?;
        let mut text = value.as_bytes().to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(name.as_bytes()), &mut text).map_err(failed)?;
        let mut sealed = nonce.to_vec();
        sealed.extend(text);
        Ok(sealed)
    }

    /// Decrypts a value.
    ///
    /// # Errors
    /// It was encrypted with another key, under another name, or is damaged.
    pub fn open(&self, name: &str, key_id: &[u8], sealed: &[u8]) -> Result<String, Thrown> {
        if key_id != self.id {
            return Err(Thrown::new(format_args!(
                "{name} was encrypted with another key; start the host with that key, or set the secret again"
            )));
        }
        let damaged = || Thrown::new(format_args!("{name} is damaged in the database; set it again"));
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or_else(damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
        let mut text = text.to_vec();
        let opened =
            self.key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut text).map_err(|_| damaged())?;
        String::from_utf8(opened.to_vec()).map_err(|_| damaged())
    }
}

/// Deletes a secret. A name that an earlier version accepted can be deleted, though no other use of it is accepted.
pub(crate) const DELETE: &str = "DELETE FROM vault WHERE name = $1 RETURNING true";

/// Returns whether a secret was deleted.
///
/// # Errors
/// It did not exist, and its name is not a vault name.
pub(crate) fn deleted(name: &str, existed: bool) -> Result<bool, Thrown> {
    match VaultName::parse(name) {
        Err(wrong) if !existed => Err(wrong.into()),
        _ => Ok(existed),
    }
}

impl Vault {
    /// Creates the store.
    pub fn new(database: Arc<Database>, cipher: Cipher) -> Self {
        Self { database, cipher }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> Point {
        Point {
            get: member!(self, |store: &Arc<Self>, (name,): (String,)| store.get(name)),
            set: member!(self, |store: &Arc<Self>, (name, value): (String, String)| store.set(&name, &value)),
            delete: member!(self, |store: &Arc<Self>, (name,): (String,)| {
                let (params, size): (Vec<Param>, usize) = (vec![Box::new(name.clone())], name.len());
                store
                    .database
                    .write(Write::new(DELETE, params, size), move |rows| deleted(&name, !rows.is_empty()))
            }),
            list: member!(self, |store: &Arc<Self>, ()| store.list()),
            close: Some(member!(self, |store: &Arc<Self>, ()| store.database.close())),
        }
    }

    fn get(self: &Arc<Self>, name: String) -> Pending<Option<String>> {
        let store = self.clone();
        Box::pin(async move {
            let name = VaultName::parse(&name)?.to_string();
            let rows = store
                .database
                .rows("SELECT key_id, value FROM vault WHERE name = $1", vec![Box::new(name.clone())])
                .await?;
            rows.first().map(|row| store.cipher.open(&name, row.get(0), row.get(1))).transpose()
        })
    }

    fn set(&self, name: &str, value: &str) -> Pending<()> {
        let sealed = VaultName::parse(name)
            .map_err(Thrown::from)
            .and_then(|name| Ok((name.to_string(), self.cipher.seal(&name.to_string(), value)?)));
        match sealed {
            Err(refused) => ready(Err(refused)),
            Ok((name, sealed)) => {
                let size = name.len() + sealed.len();
                let params: Vec<Param> =
                    vec![Box::new(name), Box::new(self.cipher.id.clone()), Box::new(sealed)];
                self.database.put(Write::new(SET, params, size))
            }
        }
    }

    fn list(self: &Arc<Self>) -> Pending<Vec<String>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.rows("SELECT name FROM vault ORDER BY name", vec![]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypts_under_the_name_and_the_key() {
        let [one, other] = [[1; 32], [2; 32]].map(|key| Cipher::new(&Secret::new(key)).ok());
        let (Some(one), Some(other)) = (one, other) else { panic!("no ciphers") };
        let sealed = one.seal("host:a", "hunter2").unwrap_or_default();
        assert!(!String::from_utf8_lossy(&sealed).contains("hunter2"));
        assert_ne!(sealed, one.seal("host:a", "hunter2").unwrap_or_default(), "a nonce is used once");
        assert_eq!(one.open("host:a", &one.id, &sealed), Ok("hunter2".to_owned()));
        let refused =
            |opened: Result<String, Thrown>| opened.err().map(|why| why.message).unwrap_or_default();
        assert!(refused(one.open("host:b", &one.id, &sealed)).contains("is damaged"));
        assert!(refused(other.open("host:a", &one.id, &sealed)).contains("another key"));
        assert!(refused(one.open("host:a", &one.id, &sealed[..5])).contains("is damaged"));
    }
}
