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

# Whatever the startup files set or lock, nothing here may print an error or change what the user's own commands see.
if [[ -o interactive ]]; then
    __ostler_escape() {
        'builtin' 'emulate' -L zsh
        local text=${1//\\/\\\\}
        text=${text//;/\\x3b}
        text=${text//$'\n'/\\x0a}
        text=${text//$'\e'/\\x1b}
        REPLY=${text//$'\a'/\\x07}
    }

    # Before a command: its line and the mark that it runs. Without a history, zsh has only the third form of the line.
    __ostler_preexec() {
        'builtin' 'emulate' -L zsh
        'builtin' 'setopt' noxtrace noerrexit
        local REPLY
        __ostler_escape "${1:-$3}"
        # A longer mark would not be taken for one.
        if (( ${#REPLY} > 16000 )); then
            REPLY=
        fi
        'builtin' 'print' -rn -- $'\e]633;E;'"$REPLY"$'\a\e]133;C\a'
    } 2>/dev/null

    # Before the prompt: how the command ended, that there is a prompt, and where the shell works.
    __ostler_precmd() {
        local code=$?
        'builtin' 'emulate' -L zsh
        'builtin' 'setopt' noxtrace noerrexit
        local folder=${PWD//\%/%25}
        folder=${folder//$'\e'/%1B}
        folder=${folder//$'\a'/%07}
        'builtin' 'print' -rn -- $'\e]133;D;'"$code"$'\a\e]133;A\a\e]7;file://'"$HOST$folder"$'\a'
    } 2>/dev/null

    # Before the first prompt, behind all startup files, which may set the lists anew or lock them.
    __ostler_install() {
        local code=$?
        'builtin' 'emulate' -L zsh
        'builtin' 'setopt' noxtrace noerrexit
        # It sees every command of these functions, and often sets the title to it.
        if [[ $('builtin' 'trap') == *DEBUG* ]]; then
            'builtin' 'print' -rn -- $'\e]633;P;IntegrationOff=a DEBUG trap is set\a'
            return 0
        fi
        if [[ ${(t)precmd_functions-} == *readonly* || ${(t)preexec_functions-} == *readonly* ]]; then
            'builtin' 'print' -rn -- $'\e]633;P;IntegrationOff=precmd_functions or preexec_functions is read-only\a'
            return 0
        fi
        'builtin' 'typeset' -ga precmd_functions preexec_functions
        # First, so that it sees the status of the command.
        precmd_functions=(__ostler_precmd $precmd_functions)
        preexec_functions+=(__ostler_preexec)
        # The functions of this prompt have run.
        (exit $code)
        __ostler_precmd
    } 2>/dev/null

    if 'builtin' 'zmodload' zsh/sched 2>/dev/null; then
        sched +0 __ostler_install
    else
        'builtin' 'print' -rn -- $'\e]633;P;IntegrationOff=the module zsh/sched is missing\a'
    fi
fi
