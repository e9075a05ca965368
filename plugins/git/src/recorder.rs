//! Records the states of one working tree. Equal work is shared: turns that begin or end at the same time have one snapshot,
//! and their refs are read and changed together. What no request waits for any more is dropped, except a change of refs that
//! has begun.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::batches::Batches;
use crate::program::{Failure, Git};
use crate::raw_diff;
use crate::selected::{Known, select};
use crate::snapshots::{Changing, base, gone, missed, of_turn, remove, update, write};
use crate::tree::Tree;
use ostler_processes::shared_work::SharedWork;

/// How many names of refs are arguments of one call.
pub(crate) const NAMES: usize = 200;

/// The recorder of one tree.
#[derive(Default)]
pub(crate) struct Recorder {
    /// The last state.
    known: Mutex<Option<Known>>,
    states: SharedWork<Result<String, Failure>>,
    requests: Batches<Request, Result<(), Failure>>,
    refs: Batches<String, Result<Option<String>, Failure>>,
    misses: Batches<String, Result<bool, Failure>>,
    changing: Changing,
}

/// A change of what is recorded.
pub(crate) enum Request {
    /// The state before a turn. `first` receives whether it is the session's first one; who waits for it has a clone.
    Before { session: String, turn: String, first: Arc<OnceLock<bool>> },
    /// The state after a turn whose state before it is recorded.
    After { session: String, turn: String },
    /// The removal of all states of a session.
    Forget { session: String },
}

impl Request {
    fn session(&self) -> &str {
        match self {
            Self::Before { session, .. } | Self::After { session, .. } | Self::Forget { session } => session,
        }
    }

    /// The refs by which it is decided what is recorded.
    fn refs(&self) -> Vec<String> {
        match self {
            Self::Before { session, .. } => vec![base(session), missed(session)],
            Self::After { session, turn } => vec![of_turn(session, turn, "before")],
            Self::Forget { .. } => Vec::new(),
        }
    }
}

fn interrupted() -> Failure {
    Failure::Other("the snapshot was interrupted".to_owned())
}

impl Recorder {
    /// Waits for a change of refs that has begun.
    pub(crate) async fn settled(&self) {
        drop(self.changing.lock().await);
    }

    /// Records something, after what was requested before.
    pub(crate) fn record(
        self: &Arc<Self>,
        tree: &Arc<Tree>,
        request: Request,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let (recorder, tree) = (self.clone(), tree.clone());
        let recorded = self
            .requests
            .add(request, move |requests| async move { recorder.process(&tree, requests).await });
        async move { recorded.await.unwrap_or_else(|| Err(interrupted())) }
    }

    /// The object of a ref.
    pub(crate) async fn get(&self, tree: &Tree, name: String) -> Result<Option<String>, Failure> {
        let root = tree.root.clone();
        let found = self.refs.add(name, move |names| async move {
            match refs(&root, &names).await {
                Ok(mut found) => names.iter().map(|name| Ok(found.remove(name))).collect(),
                Err(why) => vec![Err(why); names.len()],
            }
        });
        found.await.unwrap_or_else(|| Err(interrupted()))
    }

    /// Stores that the first turn of a session began without a snapshot; returns whether it was the first one.
    pub(crate) async fn miss(&self, tree: &Arc<Tree>, session: String) -> Result<bool, Failure> {
        let (tree, changing) = (tree.clone(), self.changing.clone());
        let stored = self.misses.add(session, move |sessions| async move {
            let count = sessions.len();
            miss(&tree, sessions, &changing)
                .await
                .map_or_else(|why| vec![Err(why); count], |missed| missed.into_iter().map(Ok).collect())
        });
        stored.await.unwrap_or_else(|| Err(interrupted()))
    }

    /// The tree object of the state now: of tracked files and of those that are not ignored.
    pub(crate) async fn now(self: &Arc<Self>, tree: &Arc<Tree>) -> Result<String, Failure> {
        let (recorder, tree) = (self.clone(), tree.clone());
        self.states.run(move || async move { recorder.state(&tree).await }).await
    }

    async fn state(&self, tree: &Arc<Tree>) -> Result<String, Failure> {
        let status = tree.status().await?;
        let (root, rows) = (tree.root.clone(), status.rows.clone());
        let commit = status.branch.commit.clone();
        if let Some(commit) = commit.as_ref().filter(|_| rows.is_empty()) {
            return Git::read(&tree.root)
                .args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")])
                .text()
                .await;
        }
        let known = self.known.lock().take();
        let known = match known {
            Some(known) => known,
            None => {
                let file = Known::file(tree);
                tokio::task::spawn_blocking(move || Known::read(&file)).await.unwrap_or_default()
            }
        };
        let looked = tokio::task::spawn_blocking(move || {
            let selected = select(&root, rows, commit.as_deref(), &known);
            (selected, known)
        });
        let (mut selected, known) =
            looked.await.map_err(|why| Failure::Other(format!("cannot look at the changed files: {why}")))?;
        if known.hash == selected.hash && !known.id.is_empty() {
            let id = known.id.clone();
            *self.known.lock() = Some(known);
            return Ok(id);
        }
        let written = match gone(tree, &selected.stored).await {
            Ok(gone) => {
                selected.hash_again(&gone);
                write(tree, &selected).await
            }
            Err(why) => Err(why),
        };
        let (id, new) = match written {
            Ok(written) => written,
            Err(why) => {
                *self.known.lock() = Some(known);
                return Err(why);
            }
        };
        let known = Known::of(selected, id.clone(), new);
        let (file, text) = (Known::file(tree), known.text());
        // Without the file, the files are hashed again after a restart.
        let _ = tokio::task::spawn_blocking(move || Known::write(&file, &text)).await;
        *self.known.lock() = Some(known);
        Ok(id)
    }

    async fn process(self: Arc<Self>, tree: &Arc<Tree>, requests: Vec<Request>) -> Vec<Result<(), Failure>> {
        // Of requests that were abandoned.
        self.settled().await;
        let mut results: Vec<Result<(), Failure>> = vec![Ok(()); requests.len()];
        let forgets = |request: &Request| matches!(request, Request::Forget { .. });
        let forgotten: Vec<&str> = requests.iter().filter(|it| forgets(it)).map(Request::session).collect();
        if !forgotten.is_empty() {
            // The working tree may be removed already.
            let removed = remove(&tree.repository, &forgotten, &self.changing).await;
            for (result, _) in results.iter_mut().zip(&requests).filter(|(_, request)| forgets(request)) {
                result.clone_from(&removed);
            }
        }
        // What precedes the removal of its session is not recorded.
        let open = requests.iter().enumerate().filter(|(at, request)| {
            !requests[*at..].iter().any(|later| forgets(later) && later.session() == request.session())
        });
        let open: Vec<(usize, &Request)> = open.collect();
        if !open.is_empty() {
            let recorded = self.record_all(tree, open.iter().map(|(_, request)| *request).collect()).await;
            match recorded {
                Ok(recorded) => {
                    for ((at, _), result) in open.iter().zip(recorded) {
                        results[*at] = result;
                    }
                }
                Err(why) => open.iter().for_each(|(at, _)| results[*at] = Err(why.clone())),
            }
        }
        results
    }

    /// Records the present state for all requests.
    async fn record_all(
        self: &Arc<Self>,
        tree: &Arc<Tree>,
        requests: Vec<&Request>,
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let names: Vec<String> = requests.iter().flat_map(|request| request.refs()).collect();
        let found = refs(&tree.root, &names).await?;
        for request in &requests {
            if let Request::Before { session, first, .. } = request {
                let _ = first.set(!found.contains_key(&base(session)));
            }
        }
        // The directories of a turn can differ from earlier ones.
        let is_open = |request: &&Request| match request {
            Request::After { session, turn } => found.contains_key(&of_turn(session, turn, "before")),
            _ => true,
        };
        if !requests.iter().any(is_open) {
            return Ok(vec![Ok(()); requests.len()]);
        }
        let now = self.now(tree).await?;
        // The state may have changes of a turn that did not wait any longer.
        let is_open = |request: &&Request| {
            is_open(request)
                && !matches!(request, Request::Before { first, .. } if Arc::strong_count(first) == 1)
        };
        let mut created = HashSet::new();
        let mut changes = Vec::new();
        for request in &requests {
            changes.push(match request {
                Request::Before { session, turn, .. } if is_open(request) => {
                    let mut change = format!("update {} {now}\n", of_turn(session, turn, "before"));
                    if !found.contains_key(&base(session)) && created.insert(session) {
                        change.push_str(&format!("create {} {now}\n", base(session)));
                        if found.contains_key(&missed(session)) {
                            change.push_str(&format!("delete {}\n", missed(session)));
                        }
                    }
                    change
                }
                Request::After { session, turn } if is_open(request) => {
                    format!("update {} {now}\n", of_turn(session, turn, "after"))
                }
                _ => String::new(),
            });
        }
        if changes.iter().all(String::is_empty) {
            return Ok(vec![Ok(()); requests.len()]);
        }
        let together = update(tree, changes.concat().into_bytes(), &self.changing).await;
        if requests.len() == 1 || together.is_ok() {
            return Ok(vec![together; requests.len()]);
        }
        // One that cannot be recorded is no reason for the others.
        let mut results = Vec::new();
        for change in changes {
            results.push(match change.is_empty() {
                true => Ok(()),
                false => update(tree, change.into_bytes(), &self.changing).await,
            });
        }
        Ok(results)
    }
}

/// The objects of those refs that exist.
async fn refs(root: &Path, names: &[String]) -> Result<HashMap<String, String>, Failure> {
    let mut found = HashMap::new();
    for names in names.chunks(NAMES) {
        let listed = Git::read(root).args(["for-each-ref", "--format=%(objectname) %(refname)"]);
        let listed = listed.args(names).text().await?;
        let pairs = listed.lines().filter_map(|line| line.split_once(' '));
        found.extend(pairs.map(|(id, name)| (name.to_owned(), id.to_owned())));
    }
    Ok(found)
}

async fn miss(tree: &Arc<Tree>, sessions: Vec<String>, changing: &Changing) -> Result<Vec<bool>, Failure> {
    drop(changing.lock().await);
    let names: Vec<String> = sessions.iter().map(|session| base(session)).collect();
    let found = refs(&tree.root, &names).await?;
    let first: Vec<bool> = names.iter().map(|name| !found.contains_key(name)).collect();
    let open: HashSet<String> = sessions
        .iter()
        .zip(&first)
        .filter(|(_, first)| **first)
        .map(|(session, _)| missed(session))
        .collect();
    if !open.is_empty() {
        let empty = raw_diff::empty_tree(&tree.root).await?;
        let changes: String = open.iter().map(|name| format!("update {name} {empty}\n")).collect();
        update(tree, changes.into_bytes(), changing).await?;
    }
    Ok(first)
}
