//! Tasks of the engine.

use futures::FutureExt as _;
use tokio::task::JoinHandle;

/// Runs a future on its own task, like [`tokio::spawn`].
///
/// The future is boxed, so that the compiler generates the code of a task once for each type of output and not for each of
/// more than a hundred futures.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn(future.boxed())
}
