//! The signals to stop and to restart, of the operating system and of the daemon itself.

use tokio::sync::mpsc;

use crate::exit::Exit;
use crate::process::Signal;

/// Receives signals of the operating system from its creation on, and those of its [`SignalSender`]s.
pub struct Signals {
    #[cfg(unix)]
    system: SystemSignals,
    requests: mpsc::UnboundedReceiver<Signal>,
    _sender: SignalSender,
}

/// Sends signals from inside the process.
#[derive(Debug, Clone)]
pub struct SignalSender(mpsc::UnboundedSender<Signal>);

impl SignalSender {
    pub fn send(&self, signal: Signal) {
        let _ = self.0.send(signal);
    }
}

#[cfg(unix)]
struct SystemSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Only a detached or managed daemon restarts. In the foreground both signals end it, as they end any program.
    again: Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

#[cfg(unix)]
impl SystemSignals {
    fn listen(restarts: bool) -> Result<Self, Exit> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen =
            |kind| signal(kind).map_err(|error| Exit::machine(format!("cannot handle signals: {error}")));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            again: match restarts {
                true => Some((listen(SignalKind::hangup())?, listen(SignalKind::user_defined2())?)),
                false => None,
            },
        })
    }

    async fn next(&mut self) -> Signal {
        let again = async {
            match &mut self.again {
                Some((gently, anyway)) => tokio::select! {
                    _ = gently.recv() => Signal::Restart,
                    _ = anyway.recv() => Signal::RestartAnyway,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            signal = again => signal,
        }
    }
}

impl Signals {
    /// Begins to listen for signals to stop and, if `restarts`, to restart.
    ///
    /// # Errors
    /// Exit 1 where the system allows no handler.
    pub fn listen(restarts: bool) -> Result<(Self, SignalSender), Exit> {
        let (sender, requests) = mpsc::unbounded_channel();
        let sender = SignalSender(sender);
        #[cfg(not(unix))]
        let _ = restarts;
        let signals = Self {
            #[cfg(unix)]
            system: SystemSignals::listen(restarts)?,
            requests,
            _sender: sender.clone(),
        };
        Ok((signals, sender))
    }

    /// Resolves with the next signal.
    pub async fn next(&mut self) -> Signal {
        #[cfg(unix)]
        let outside = self.system.next();
        #[cfg(not(unix))]
        let outside = async {
            let _ = tokio::signal::ctrl_c().await;
            Signal::Stop
        };
        tokio::select! {
            signal = outside => signal,
            Some(signal) = self.requests.recv() => signal,
        }
    }

    /// Resolves at the next signal to stop.
    pub async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}

/// The interrupts from the keyboard since its creation. None, if the process was started to ignore them.
pub struct Interrupts {
    #[cfg(unix)]
    system: Option<tokio::signal::unix::Signal>,
}

impl Interrupts {
    /// Begins to receive them.
    pub fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let kind = SignalKind::interrupt();
            let system = if ignores(kind) { None } else { signal(kind).ok() };
            Self { system }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Resolves at the next one.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        match &mut self.system {
            Some(system) => {
                system.recv().await;
            }
            None => std::future::pending().await,
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Waits for a signal that ends a command, and returns the exit code that a shell expects then. It ignores the signals
/// that the process was started to ignore, as `nohup` and shells do for background jobs.
pub async fn termination() -> u8 {
    #[cfg(unix)]
    {
        use tokio::signal::unix::SignalKind;
        tokio::select! {
            code = received(SignalKind::interrupt()) => code,
            code = received(SignalKind::terminate()) => code,
            code = received(SignalKind::hangup()) => code,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
        130
    }
}

/// Like [`termination`], while another program has the terminal: an interrupt from the keyboard is for that program.
#[cfg(unix)]
pub async fn termination_in_foreground() -> u8 {
    use tokio::signal::unix::SignalKind;
    tokio::select! {
        code = received(SignalKind::terminate()) => code,
        code = received(SignalKind::hangup()) => code,
        code = ignore_keyboard() => code,
    }
}

/// Ignores interrupts from the keyboard.
#[cfg(unix)]
async fn ignore_keyboard() -> u8 {
    use tokio::signal::unix::SignalKind;
    loop {
        tokio::select! {
            _ = received(SignalKind::interrupt()) => {}
            _ = received(SignalKind::quit()) => {}
        }
    }
}

/// Waits for a signal and returns its exit code. Never resolves if this process was started to ignore it, or cannot
/// receive it.
#[cfg(unix)]
async fn received(kind: tokio::signal::unix::SignalKind) -> u8 {
    if ignores(kind) {
        return std::future::pending().await;
    }
    let number = kind.as_raw_value();
    match tokio::signal::unix::signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
            128 + u8::try_from(number).unwrap_or_default()
        }
        // Without a handler, the signal ends the process.
        Err(_) => std::future::pending().await,
    }
}

/// Returns whether this process was started to ignore a signal.
#[cfg(unix)]
fn ignores(kind: tokio::signal::unix::SignalKind) -> bool {
    ignored_signals() & (1 << (kind.as_raw_value() - 1)) != 0
}

/// The signals that this process ignores, one bit each. 0 if the system does not report them.
#[cfg(unix)]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
