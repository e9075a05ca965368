# Reports the commands of fish to the terminal it runs in. Run behind the user's configuration. From version 4 on, fish
# does so itself.

if status is-interactive; and test (string split . -- $version)[1] -lt 4
    function __ostler_escape
        string replace --all '\\' '\\\\' -- $argv | string replace --all ';' '\\x3b' | string replace --all \e '\\x1b' \
            | string replace --all \a '\\x07' | string join '\\x0a'
    end

    # Before a command: its line and the mark that it runs.
    function __ostler_executes --on-event fish_preexec
        printf '\e]633;E;%s\a\e]133;C\a' (__ostler_escape $argv | string collect)
    end

    # After a command: how it ended.
    function __ostler_ended --on-event fish_postexec
        printf '\e]133;D;%s\a' $status
    end

    # Before the prompt: where the shell works.
    function __ostler_prompts --on-event fish_prompt
        printf '\e]7;file://%s%s\a' $hostname (string escape --style=url -- $PWD)
    end

    # The marks around the prompt.
    functions --query fish_prompt; and functions --copy fish_prompt __ostler_user_prompt
    function fish_prompt
        set --local code $status
        printf '\e]133;A\a'
        if functions --query __ostler_user_prompt
            __ostler_restore $code
            __ostler_user_prompt
        end
        printf '\e]133;B\a'
    end

    function __ostler_restore
        return $argv[1]
    end
end
