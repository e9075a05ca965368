//! Parsing of URLs of git remotes.

use percent_encoding::percent_decode_str;
use url::Url;

/// The repository of a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The host in lowercase, as web pages of the repository have it.
    pub host: String,
    /// The port of a web address, where it has one.
    pub port: Option<u16>,
    /// The path, without `.git`; at least an owner and a name.
    pub path: Vec<String>,
}

/// Hosts that serve only SSH, and whose repositories they serve.
const SSH_HOSTS: &[(&str, &str)] = &[
    ("ssh.github.com", "github.com"),
    ("altssh.gitlab.com", "gitlab.com"),
    ("www.github.com", "github.com"),
];

impl Address {
    /// Reads `https://host/owner/name.git`, `ssh://git@host:22/owner/name` and `git@host:owner/name`. `None` for a path
    /// of this machine, and for anything that names no repository.
    pub(crate) fn parse(remote: &str) -> Option<Self> {
        let remote = remote.trim();
        let (host, port, path) = match remote.contains("://") {
            true => {
                let url = Url::parse(remote).ok()?;
                let scheme = url.scheme().strip_prefix("git+").unwrap_or(url.scheme());
                let is_web = matches!(scheme, "http" | "https");
                if !is_web && !matches!(scheme, "ssh" | "git") {
                    return None;
                }
                (url.host_str()?.to_owned(), url.port().filter(|_| is_web), url.path().to_owned())
            }
            // `host:path`: a colon before any slash.
            false => {
                let rest =
                    remote.split_once('@').map_or(remote, |(user, rest)| match user.contains(['/', ':']) {
                        true => remote,
                        false => rest,
                    });
                let (host, path) = rest.split_once(':')?;
                // One letter is a drive of another system.
                if host.len() < 2 || host.contains('/') || path.starts_with("\\") {
                    return None;
                }
                (host.to_owned(), None, path.to_owned())
            }
        };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let host = SSH_HOSTS.iter().find(|(ssh, _)| *ssh == host).map_or(host, |(_, web)| (*web).to_owned());
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let path: Vec<String> = path
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8().ok().map(|part| part.into_owned()))
            .collect::<Option<_>>()?;
        let odd = |part: &String| matches!(part.as_str(), "" | "." | "..") || part.contains(['/', '\0']);
        (path.len() >= 2 && !host.is_empty() && !path.iter().any(odd)).then_some(Self { host, port, path })
    }

    /// The names by which a configuration may call the host, the most exact one first.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let with_port = self.port.map(|port| format!("{}:{port}", self.host));
        with_port.into_iter().chain([self.host.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(remote: &str) -> Option<(String, Option<u16>, String)> {
        Address::parse(remote).map(|at| (at.host, at.port, at.path.join("/")))
    }

    #[test]
    fn the_forms_that_git_takes() {
        let stable = |host: &str| Some((host.to_owned(), None, "inn/stable".to_owned()));
        for remote in [
            "https://github.com/inn/stable",
            "https://github.com/inn/stable.git",
            "https://GitHub.com/inn/stable/",
            "https://ada:secret@github.com/inn/stable.git",
            "http://www.github.com/inn/stable",
            "git://github.com/inn/stable.git",
            "ssh://git@github.com/inn/stable.git",
            "ssh://git@github.com:22/inn/stable",
            "git+ssh://git@github.com/inn/stable",
            "ssh://git@ssh.github.com:443/inn/stable.git",
            "git@github.com:inn/stable.git",
            "git@github.com:/inn/stable.git",
            "github.com:inn/stable",
            "org-1234@github.com:inn/stable.git",
        ] {
            assert_eq!(read(remote), stable("github.com"), "{remote}");
        }
        assert_eq!(read("git@work:inn/stable"), stable("work"));
        assert_eq!(
            read("https://code.example:8443/a/b/c.git"),
            Some(("code.example".to_owned(), Some(8443), "a/b/c".to_owned()))
        );
        assert_eq!(read("https://x.example/a%20b/c").map(|it| it.2), Some("a b/c".to_owned()));
    }

    #[test]
    fn what_names_no_repository_of_a_host() {
        for remote in [
            "",
            "/srv/git/inn/stable.git",
            "../stable.git",
            "./a:b/c",
            "C:\\git\\stable",
            "C:/git/stable",
            "file:///srv/git/inn/stable.git",
            "https://github.com/",
            "https://github.com/inn",
            "https://github.com/inn//stable",
            "https://github.com/inn/%2e%2e/x",
            "git@github.com:stable",
            "git@github.com:../../etc/passwd",
            "ftp://github.com/inn/stable",
            "https:///inn/stable",
            "git@github.com:a%2fb/c",
            "git@github.com:inn/sta%00ble",
        ] {
            assert_eq!(read(remote), None, "{remote}");
        }
    }

    proptest::proptest! {
        /// Whatever is read has parts that are a path's parts and nothing else.
        #[test]
        fn a_path_has_no_way_out(remote in "(https://|ssh://git@|git@)?[a-z.]{0,8}[:/][ -~]{0,30}") {
            if let Some(at) = Address::parse(&remote) {
                proptest::prop_assert!(at.path.len() >= 2);
                proptest::prop_assert!(at.path.iter().all(|part| !part.contains('/') && !matches!(part.as_str(), "" | "." | "..")));
            }
        }
    }
}
