//! Copies everything between the stores of a host, and verifies the copy.
//!
//! The target is compared with the source before anything is written: it has to have the first items of each kind, as an
//! interrupted copy leaves them, or none. After the copy everything is read back from both.

use std::collections::VecDeque;

use ostler_contract::Thrown;
use ostler_contract::stores::transfer::{Item, Kind, PAGE_BYTES, PAGE_ITEMS, Position, Transfer};
use ring::digest::{Context, SHA256};
use serde::Serialize;

use crate::exit::Exit;

/// What became of a kind of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The kind, in the plural.
    pub kind: &'static str,
    /// The number of items.
    pub items: u64,
    /// How many of them this copy wrote; the target had the others.
    pub copied: u64,
    /// A hash of all items and their order, equal in both stores.
    pub sha256: String,
}

/// Copies everything from one store to another. `hint` says what to do about a target with other data.
///
/// # Errors
/// Exit 1 if the target has other data, a store fails, or the copy differs from the source. The source is not changed, and
/// the same command completes an interrupted copy.
pub async fn copy(
    from: &dyn Transfer,
    to: &dyn Transfer,
    hint: &str,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Copied>, Exit> {
    say("comparing");
    let mut begins = Vec::new();
    for kind in Kind::ALL {
        begins.push(common(kind, from, to, hint).await?);
    }
    for (kind, begin) in Kind::ALL.into_iter().zip(&begins) {
        say(&format!("copying {}", kind.name()));
        append(kind, from, to, begin.position.clone()).await?;
    }
    to.close().await.map_err(failed)?;
    let mut done = Vec::new();
    for (kind, begin) in Kind::ALL.into_iter().zip(begins) {
        say(&format!("verifying {}", kind.name()));
        let (source, target) = (digest(kind, from).await?, digest(kind, to).await?);
        if source != target {
            return Err(Exit::machine(format!(
                "the copy differs from the source: {} {} (sha256 {}) in {}, {} (sha256 {}) in {}; nothing was changed in the \
                 source; another program may have changed one of them during the copy",
                source.0,
                kind.name(),
                source.1,
                from.place(),
                target.0,
                target.1,
                to.place(),
            )));
        }
        let (items, sha256) = target;
        done.push(Copied { kind: kind.name(), items, copied: items - begin.items, sha256 });
    }
    Ok(done)
}

fn failed(why: Thrown) -> Exit {
    Exit::machine(why.message)
}

/// How far a target has the items of a source.
struct Begin {
    items: u64,
    /// The position of the last common item, in the source.
    position: Option<Position>,
}

/// Compares a target with the beginning of a source.
async fn common(kind: Kind, from: &dyn Transfer, to: &dyn Transfer, hint: &str) -> Result<Begin, Exit> {
    let (mut source, mut target) = (Items::of(kind, from), Items::of(kind, to));
    let mut begin = Begin { items: 0, position: None };
    while let Some(there) = target.next().await? {
        let equal = match source.next().await? {
            Some(wanted) => {
                let equal = hash(kind, &wanted)? == hash(kind, &there)?;
                begin.position = Some(wanted.position);
                equal
            }
            None => false,
        };
        if !equal {
            return Err(Exit::machine(format!(
                "{} is not empty and has other data than {}: {} {}; nothing was changed; {hint}",
                to.place(),
                from.place(),
                kind.name(),
                there.name(kind),
            )));
        }
        begin.items += 1;
    }
    Ok(begin)
}

/// Copies the items after a position.
async fn append(
    kind: Kind,
    from: &dyn Transfer,
    to: &dyn Transfer,
    after: Option<Position>,
) -> Result<(), Exit> {
    let mut source = Items::of(kind, from);
    source.after = after;
    let (mut items, mut bytes) = (Vec::new(), 0);
    while let Some(item) = source.next().await? {
        bytes += item.bytes();
        items.push(item);
        if bytes >= PAGE_BYTES || items.len() >= PAGE_ITEMS {
            to.append(kind, std::mem::take(&mut items)).await.map_err(failed)?;
            bytes = 0;
        }
    }
    match items.is_empty() {
        true => Ok(()),
        false => to.append(kind, items).await.map_err(failed),
    }
}

/// Returns the number of items of a kind, and a hash of them.
async fn digest(kind: Kind, of: &dyn Transfer) -> Result<(u64, String), Exit> {
    let mut items = Items::of(kind, of);
    let (mut count, mut all) = (0, Context::new(&SHA256));
    while let Some(item) = items.next().await? {
        count += 1;
        all.update(&hash(kind, &item)?);
    }
    Ok((count, hex::encode(all.finish())))
}

fn hash(kind: Kind, item: &Item) -> Result<Vec<u8>, Exit> {
    let mut context = Context::new(&SHA256);
    item.hash(kind, &mut |bytes| context.update(bytes)).map_err(Exit::machine)?;
    Ok(context.finish().as_ref().to_vec())
}

/// The items of a kind, a page at a time.
struct Items<'a> {
    kind: Kind,
    of: &'a dyn Transfer,
    after: Option<Position>,
    page: VecDeque<Item>,
}

impl<'a> Items<'a> {
    fn of(kind: Kind, of: &'a dyn Transfer) -> Self {
        Self { kind, of, after: None, page: VecDeque::new() }
    }

    async fn next(&mut self) -> Result<Option<Item>, Exit> {
        if self.page.is_empty() {
            self.page = self.of.read(self.kind, self.after.clone()).await.map_err(failed)?.into();
        }
        let item = self.page.pop_front();
        if let Some(item) = &item {
            self.after = Some(item.position.clone());
        }
        Ok(item)
    }
}
