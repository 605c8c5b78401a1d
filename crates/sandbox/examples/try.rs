//! scratch
use std::time::{Duration, Instant};
fn main() -> std::process::ExitCode {
    if let Some(code) = sandbox::spawner_main_if_asked() {
        return code;
    }
    let slots = 8;
    let l = sandbox::Engine::launch(sandbox::EngineConfig {
        slots,
        warm: 4,
        spawners: 2,
        uid_base: 1_900_000_000,
        image: Default::default(),
        insecure_no_limits: std::env::var("INSECURE").is_ok(),
    });
    let l = match l {
        Ok(l) => l,
        Err(e) => {
            eprintln!("{e} {e:?}");
            return 1.into();
        }
    };
    eprintln!("{}", l.layers());
    let rt =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    rt.block_on(async {
        let e = sandbox::Engine::attach(l).unwrap();
        let args: Vec<Vec<u8>> = std::env::args().skip(1).map(|s| s.into_bytes()).collect();
        let n: usize = std::env::var("N").ok().map_or(1, |s| s.parse().unwrap());
        let mut lat = vec![];
        let mut lat2 = vec![];
        for i in 0..n {
            let mut sb = e.sandbox().await.unwrap();
            if std::env::var("PAUSE").is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let t = Instant::now();
            let x = sb
                .run(
                    sandbox::Command {
                        argv: args.clone(),
                        env: vec![b"PATH=/usr/bin:/bin".to_vec()],
                        last: true,
                        limits: sandbox::Limits {
                            cpu: Duration::from_secs(1),
                            wall: Duration::from_secs(2),
                            memory_bytes: 64 << 20,
                            processes: 32,
                            ..Default::default()
                        },
                        ..Default::default()
                    },
                    &mut (),
                )
                .await;
            lat.push(t.elapsed());
            if let Ok(x) = &x {
                lat2.push(x.wall);
            }
            if i == 0 {
                match x {
                    Ok(x) => {
                        println!(
                            "{:?}",
                            sandbox::Exit { stdout: vec![], stderr: vec![], ..x.clone() }
                        );
                        println!(
                            "{}\n--\n{}",
                            String::from_utf8_lossy(&x.stdout),
                            String::from_utf8_lossy(&x.stderr)
                        );
                    }
                    Err(e) => println!("ERR {e}: {e:?}"),
                }
            }
        }
        lat.sort();
        lat2.sort();
        println!(
            "run p50 {:?} min {:?} p95 {:?}; init wall p50 {:?} min {:?}",
            lat[lat.len() / 2],
            lat[0],
            lat[lat.len() * 95 / 100],
            lat2.get(lat2.len() / 2),
            lat2.first()
        );
        e.close().await;
    });
    0.into()
}
