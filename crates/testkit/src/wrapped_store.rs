//! A session store whose calls are wrapped, for stores that fail, wait or report.

use ostler_contract::Call;
use ostler_contract::call::Signature;
use ostler_contract::points::SessionStore;

/// Wraps the calls of a store.
pub trait WrapCall {
    /// Wraps one call. `writes` is true if the call changes the store.
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S>;
}

/// Returns a session store whose calls are wrapped, except the one that closes it.
pub fn wrapped_store(store: &SessionStore, with: &impl WrapCall) -> SessionStore {
    macro_rules! each {
        ($($must:ident $writes:literal,)+; $($may:ident $and_writes:literal,)+) => {
            SessionStore {
                $($must: with.wrap(&store.$must, $writes),)+
                $($may: store.$may.as_ref().map(|call| with.wrap(call, $and_writes)),)+
                close: store.close.clone(),
            }
        };
    }
    each!(
        flags false, set_flags true, config false, set_config true, artifacts false, set_artifacts true,
        pull_requests false, set_pull_requests true, chat_title false, set_chat_title true, chats false,
        set_chats true, sessions false, forget true,;
        all false, session false, page false, session_of_chat false, drafts false, count false, turns false,
        set_turn true, drop_turns true, annotations false, set_annotations true, set_attachment true,
        attachment false,
    )
}
