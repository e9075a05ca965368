# Reports the commands of fish to the terminal it runs in. Run behind the user's configuration. From version 4 on, fish
# does so itself.

if status is-interactive; and test (string split . -- $version)[1] -lt 4
    function __ostler_escape
        string replace --all '\\' '\\\\' -- $argv | string replace --all ';' '\\x3b' | string replace --all \e '\\x1b' \
            | string replace --all \a '\\x07' | string join '\\x0a'
    end

    # Before a command: its line and the mark that it runs. A longer mark would not be taken for one.
    function __ostler_executes --on-event fish_preexec
        set --local line (__ostler_escape $argv | string collect)
        if test (string length -- "$line") -gt 16000
            set line ''
        end
        printf '\e]633;E;%s\a\e]133;C\a' "$line"
    end

    # After a command: how it ended.
    function __ostler_ended --on-event fish_postexec
        printf '\e]133;D;%s\a' $status
    end

    # Before the prompt: that there is one, and where the shell works.
    function __ostler_prompts --on-event fish_prompt
        printf '\e]133;A\a\e]7;file://%s%s\a' "$hostname" (string escape --style=url -- "$PWD")
    end
end
