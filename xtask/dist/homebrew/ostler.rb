class Ostler < Formula
  desc "Daemon that serves AI-agent sessions over the Agent Host Protocol"
  homepage "{{repository}}"
  version "{{version}}"
  license "MIT"

{{downloads}}
  def install
    bin.install "bin/ostler"
    man1.install Dir["share/man/man1/*.1"]
    doc.install "share/doc/ostler/docs"
    bash_completion.install "share/bash-completion/completions/ostler"
    zsh_completion.install "share/zsh/site-functions/_ostler"
    fish_completion.install "share/fish/vendor_completions.d/ostler.fish"
  end

  service do
    run [opt_bin/"ostler"]
    keep_alive crashed: true
    working_dir Dir.home
    log_path var/"log/ostler.log"
    error_log_path var/"log/ostler.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/ostler --version")
  end
end
