#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_plugin_webhook::fuzzing::cloudevents(data));
