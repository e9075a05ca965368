//! The session store.

use std::sync::Arc;

use ostler_contract::points::{
    KeptAttachment, KeptChat, KeptSession, KeptTurn, ListedPlace, SessionFlags, SessionStore,
};
use ostler_contract::{Call, JsonObject, Value};

use super::Member;
use super::writer::Target;
use crate::database::rows::SessionRow;

type M = Arc<Member>;

/// A member of the store that calls a function with the member.
macro_rules! member {
    ($member:expr, $function:expr) => {{
        let member: M = $member.clone();
        Call::new(move |arguments| $function(&member, arguments))
    }};
}

/// A function that reads one part of a session.
macro_rules! part {
    ($member:expr, $read:expr) => {
        member!($member, |member: &M, (id,): (String,)| {
            member.read(move |tables| tables.sessions.get(&id).map($read).unwrap_or_default())
        })
    };
}

/// A function that stores one part of a session; listings show it if `$listed`.
macro_rules! set_part {
    ($member:expr, $value:ty, $listed:literal, $set:expr) => {
        member!($member, |member: &M, (id, value): (String, $value)| {
            let session = id.clone();
            member.append(&id, move |tables, me| {
                let set: fn(&mut SessionRow, $value) = $set;
                set(tables.sessions.of(&session), value.clone());
                if $listed {
                    tables.changed_session(me, &session);
                }
                Ok(())
            })
        })
    };
}

/// Returns the store of a member.
pub fn store(own: &M) -> SessionStore {
    SessionStore {
        flags: part!(own, |row| row.flags),
        set_flags: set_part!(own, SessionFlags, true, |row, flags| row.flags = Some(flags)),
        config: part!(own, |row| row.kept.clone()),
        set_config: member!(own, |member: &M, (id, kept): (String, KeptSession)| {
            let session = id.clone();
            member.append(&id, move |tables, me| {
                tables.keep_session(me, &session, kept.clone());
                Ok(())
            })
        }),
        artifacts: part!(own, |row| row.artifacts.clone()),
        set_artifacts: set_part!(own, Vec<Value>, false, |row, artifacts| row.artifacts = artifacts),
        pull_requests: part!(own, |row| row.pull_requests.clone()),
        set_pull_requests: set_part!(own, JsonObject, false, |row, requests| row.pull_requests = requests),
        chat_title: member!(own, |member: &M, (id, chat): (String, String)| {
            member.read(move |tables| tables.sessions.get(&id)?.titles.get(&chat).cloned())
        }),
        set_chat_title: member!(own, |member: &M, (id, chat, title): (String, String, Option<String>)| {
            let session = id.clone();
            member.append(&id, move |tables, _| {
                let titles = &mut tables.sessions.of(&session).titles;
                match &title {
                    Some(title) => drop(titles.insert(chat.clone(), title.clone())),
                    None => drop(titles.remove(&chat)),
                }
                Ok(())
            })
        }),
        chats: part!(own, |row| row.chats.clone()),
        set_chats: set_part!(own, Vec<KeptChat>, true, |row, chats| row.chats = chats),
        sessions: member!(own, |member: &M, ()| {
            member.read(|tables| tables.sessions.stored().into_iter().map(|(id, _)| id.clone()).collect())
        }),
        forget: member!(own, |member: &M, (id,): (String,)| {
            let target = Target { session: id.clone(), ends: true };
            member.queue(Some(target), None, move |tables, me| {
                tables.remove_session(me, &id);
                Ok(())
            })
        }),
        all: Some(member!(own, |member: &M, ()| {
            member
                .read(|tables| tables.sessions.stored().into_iter().map(|(id, row)| row.listed(id)).collect())
        })),
        session: Some(member!(own, |member: &M, (id,): (String,)| {
            member.read(move |tables| {
                let row = tables.sessions.get(&id).filter(|row| row.kept.is_some())?;
                Some(row.listed(&id))
            })
        })),
        page: Some(member!(own, |member: &M, (limit, after): (u64, Option<ListedPlace>)| {
            member.read(move |tables| tables.sessions.page(limit, after.as_ref()))
        })),
        session_of_chat: Some(member!(own, |member: &M, (chat,): (String,)| {
            member.read(move |tables| tables.sessions.of_chat(&chat))
        })),
        drafts: Some(member!(own, |member: &M, ()| {
            member.read(|tables| {
                let stored = tables.sessions.stored().into_iter();
                let is_draft = |row: &SessionRow| row.kept.as_ref().is_some_and(|kept| kept.draft.is_some());
                stored.filter(|(_, row)| is_draft(row)).map(|(id, _)| id.clone()).collect()
            })
        })),
        waiting: Some(member!(own, |member: &M, ()| {
            member.read(|tables| {
                let stored = tables.sessions.stored().into_iter();
                let is_listed = |row: &SessionRow, chat: &str| {
                    row.chats.is_empty() || row.chats.iter().any(|listed| listed.uri == chat)
                };
                let waits = |row: &SessionRow| {
                    let unended =
                        row.turns.iter().any(|((chat, _), kept)| kept.unended && is_listed(row, chat));
                    unended || row.chats.iter().any(KeptChat::waits)
                };
                stored.filter(|(_, row)| waits(row)).map(|(id, _)| id.clone()).collect()
            })
        })),
        count: Some(member!(own, |member: &M, ()| {
            member.read(|tables| tables.sessions.stored().len() as u64)
        })),
        turns: Some(member!(own, |member: &M, (id, chat): (String, String)| {
            member.read(move |tables| {
                let turns = tables.sessions.get(&id).map(|row| row.turns.iter());
                let of = turns.into_iter().flatten().filter(|((of, _), _)| *of == chat);
                of.map(|(_, kept)| kept.clone()).collect()
            })
        })),
        set_turn: Some(member!(
            own,
            |member: &M, (id, chat, place, turn): (String, String, u64, KeptTurn)| {
                let session = id.clone();
                member.append(&id, move |tables, _| {
                    tables.sessions.of(&session).turns.insert((chat.clone(), place), turn.clone());
                    Ok(())
                })
            }
        )),
        drop_turns: Some(member!(own, |member: &M, (id, chat, from): (String, String, u64)| {
            let session = id.clone();
            member.append(&id, move |tables, _| {
                let turns = &mut tables.sessions.of(&session).turns;
                turns.retain(|(of, place), _| *of != chat || *place < from);
                Ok(())
            })
        })),
        annotations: Some(part!(own, |row| row.annotations.clone())),
        set_annotations: Some(set_part!(own, Vec<Value>, false, |row, annotations| {
            row.annotations = annotations;
        })),
        reported: Some(part!(own, |row| row.reported.clone())),
        set_reported: Some(set_part!(own, JsonObject, false, |row, reported| {
            row.reported = reported;
        })),
        set_attachment: Some(member!(
            own,
            |member: &M, (id, attachment, kept): (String, String, KeptAttachment)| {
                let session = id.clone();
                member.append(&id, move |tables, _| {
                    let attachments = &mut tables.sessions.of(&session).attachments;
                    attachments.entry(attachment.clone()).or_insert_with(|| kept.clone());
                    Ok(())
                })
            }
        )),
        attachment: Some(member!(own, |member: &M, (id,): (String,)| {
            member.read(move |tables| tables.sessions.attachment(&id))
        })),
        close: Some(member!(own, |member: &M, ()| member.close())),
    }
}
