# Runs shell handlers, one job after the other. Alone in its process: nothing of hipq is there.
#
# Descriptors 3 and 5 are the private channel: lines of words come in, separated by tabs; lines of JSON and counted bytes go
# out. Descriptor 4 has the payloads, and the sources. Each job runs in a shell forked from this one, which has none of them.
# See docs/handlers-in-other-languages.md.

hipq_tab=$(printf '\t')
hipq_answer=$PWD/.hipq
mkdir -p "$hipq_answer"
hipq_options=

# status CODE [DATA]: what the job is to be answered with, if it then ends well. DATA '-' is standard input.
status() {
    local LC_ALL=C # sizes are bytes
    if [ "${2-}" = - ]; then
        cat >"$hipq_answer/data" && printf '%s %s\n' "$1" "$(wc -c <"$hipq_answer/data")" >"$hipq_answer/status"
    else
        local hipq_data="${2-}"
        printf '%s' "$hipq_data" >"$hipq_answer/data" && printf '%s %s\n' "$1" "${#hipq_data}" >"$hipq_answer/status"
    fi
}

hipq_source() {
    head -c "$1" <&4
}

# Parts that run in this very shell, so that what they define stays. Their options are kept for the jobs, not for us.
hipq_part() {
    [ -n "$2" ] || return 0
    eval "$hipq_options"
    { eval "$2"; } </dev/null 3>&- 4>&- 5>&-
    eval "hipq_result=$?; set +eu"
    hipq_options=$(set +o)
    set +efnux
    return "$hipq_result"
}

hipq_done() {
    printf '{"kind":"done","status":%s,"size":%s,"error":"%s"}\n' "$1" "$2" "$3" >&5
}

hipq_load() {
    hipq_before=$(hipq_source "$2"; echo .) && hipq_before=${hipq_before%.}
    hipq_each=$(hipq_source "$3"; echo .) && eval "hipq_each_$1=\${hipq_each%.}"
    hipq_body=$(hipq_source "$4"; echo .) && eval "hipq_body_$1=\${hipq_body%.}"
    hipq_after=$(hipq_source "$5"; echo .) && eval "hipq_after_$1=\${hipq_after%.}"
    hipq_part "$1" "$hipq_before"
    hipq_done_part $?
}

hipq_done_part() {
    if [ "$1" -eq 0 ]; then hipq_done 200 0 ''; else hipq_done 500 0 "it exited with status $1"; fi
}

hipq_job() {
    [ -d "$hipq_answer" ] || mkdir -p "$hipq_answer"
    : >"$hipq_answer/status" >"$hipq_answer/data" || exit 74 # before it has begun: another context will do it
    head -c "$4" <&4 >"$hipq_answer/payload" || exit 74
    IFS= read -r hipq_newline <&4 || exit 74
    printf '{"kind":"begun"}\n' >&5
    eval "hipq_body=\$hipq_body_$1"
    (
        HIPQ_JOB_ID=$5 HIPQ_JOB_TYPE=$2 HIPQ_ATTEMPT=$3
        export HIPQ_JOB_ID HIPQ_JOB_TYPE HIPQ_ATTEMPT
        hipq_handle() { eval "$hipq_body"; }
        eval "$hipq_options"
        hipq_handle
    ) <"$hipq_answer/payload" 3>&- 4>&- 5>&-
    hipq_exit=$?
    if [ "$hipq_exit" -ne 0 ] || [ ! -s "$hipq_answer/status" ]; then
        printf '{"kind":"exited","status":%s}\n' "$hipq_exit" >&5
        return
    fi
    IFS=' ' read -r hipq_code hipq_size <"$hipq_answer/status"
    case $hipq_code in
    '' | 0* | *[!0-9]* | ?????*) hipq_code=0 ;;
    esac
    if [ "$hipq_size" -gt 16777216 ]; then
        hipq_done 413 0 "it returned $((hipq_size)) bytes; 16777216 are allowed"
        return
    fi
    hipq_done "$((hipq_code))" "$((hipq_size))" ''
    [ "$hipq_size" -eq 0 ] || cat "$hipq_answer/data" >&5
}

printf '{"kind":"hello"}\n' >&5
while IFS=$hipq_tab read -r hipq_do hipq_a hipq_b hipq_c hipq_d hipq_e <&3; do
    case $hipq_do in
    job) hipq_job "$hipq_a" "$hipq_b" "$hipq_c" "$hipq_d" "$hipq_e" ;;
    load) hipq_load "$hipq_a" "$hipq_b" "$hipq_c" "$hipq_d" "$hipq_e" ;;
    forget) unset "hipq_body_$hipq_a" "hipq_each_$hipq_a" "hipq_after_$hipq_a" ;;
    begin) eval "hipq_part $hipq_a \"\$hipq_each_$hipq_a\"" && hipq_done_part 0 || hipq_done_part $? ;;
    end) eval "hipq_part $hipq_a \"\$hipq_after_$hipq_a\"" && hipq_done_part 0 || hipq_done_part $? ;;
    esac
done
