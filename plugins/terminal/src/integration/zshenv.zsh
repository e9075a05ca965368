# Reports the commands of zsh to the terminal it runs in. Read in place of the user's .zshenv, which it reads first; the
# other startup files are read from the user's own folder.

if [[ -n ${OSTLER_ZDOTDIR+set} ]]; then
    'builtin' 'export' ZDOTDIR="$OSTLER_ZDOTDIR"
    'builtin' 'unset' OSTLER_ZDOTDIR
else
    'builtin' 'unset' ZDOTDIR
fi

if [[ -r ${ZDOTDIR-$HOME}/.zshenv ]]; then
    'builtin' 'source' "${ZDOTDIR-$HOME}/.zshenv"
fi

if [[ -o interactive ]]; then
    __ostler_escape() {
        'builtin' 'emulate' -L zsh
        local text=${1//\\/\\\\}
        text=${text//;/\\x3b}
        text=${text//$'\n'/\\x0a}
        text=${text//$'\e'/\\x1b}
        REPLY=${text//$'\a'/\\x07}
    }

    # Before a command: its line and the mark that it runs.
    __ostler_preexec() {
        'builtin' 'emulate' -L zsh
        local REPLY
        __ostler_escape "$1"
        'builtin' 'print' -rn -- $'\e]633;E;'"$REPLY"$'\a\e]133;C\a'
    }

    # Before the prompt: how the command ended, where the shell works, and marks around a prompt that something may have
    # set again.
    __ostler_precmd() {
        local code=$?
        'builtin' 'emulate' -L zsh
        local folder=${PWD//\%/%25}
        folder=${folder//$'\e'/%1B}
        folder=${folder//$'\a'/%07}
        'builtin' 'print' -rn -- $'\e]133;D;'"$code"$'\a\e]7;file://'"$HOST$folder"$'\a'
        if [[ $PS1 != *'133;A'* ]]; then
            PS1=$'%{\e]133;A\a%}'"$PS1"$'%{\e]133;B\a%}'
        fi
        # Behind what the startup files added, so that it sees the prompt they set.
        if [[ ${precmd_functions[-1]} != __ostler_precmd ]]; then
            precmd_functions=(${precmd_functions:#__ostler_precmd} __ostler_precmd)
        fi
    }

    'builtin' 'typeset' -ga precmd_functions preexec_functions
    precmd_functions+=(__ostler_precmd)
    preexec_functions+=(__ostler_preexec)
fi
